"""Status codes of one chunk; 0 is success. The engine turns them into messages."""

from typing import Final

OK: Final = 0
#: No such file.
ABSENT: Final = 1
#: Opening or reading failed; the detail is errno.
IO_ERROR: Final = 2
#: The file ended early; the detail is the number of bytes read.
SHORT_READ: Final = 3
#: More encoded bytes than a chunk of this size can have; the detail is their number.
TOO_LARGE: Final = 4
#: The decoded size is not the expected one; the detail is the size, or -1 if the decoder stopped at its limit.
WRONG_SIZE: Final = 5
#: A decoder refused the bytes; the detail is the decoder's own code.
CORRUPT: Final = 6
#: A checksum does not match.
BAD_CHECKSUM: Final = 7
#: A Blosc container's header or block table is wrong; the detail is a ``BLOSC_…`` code below.
BAD_BLOSC: Final = 8
#: Out of memory.
NO_MEMORY: Final = 9
#: A symbolic link to a file that does not exist.
DANGLING_LINK: Final = 10
#: Packed bits state a wrong number of padding bits; the detail is 8 times that number, plus the right one.
BAD_PADDING: Final = 11

BLOSC_TRUNCATED: Final = 1
BLOSC_VERSION: Final = 2
BLOSC_BLOCKSIZE: Final = 4
BLOSC_LENGTH: Final = 5
BLOSC_BLOCK_START: Final = 6
BLOSC_STREAM_LENGTH: Final = 7
BLOSC_COMPRESSOR: Final = 8
BLOSC_TYPESIZE: Final = 9
