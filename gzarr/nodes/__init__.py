"""Documents of nodes in a store: finding, creating and changing them."""
