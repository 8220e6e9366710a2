"""Plans and programs of reads and writes: the chunks, their bytes, and the operations on them."""
