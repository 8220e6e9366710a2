"""Arrays and groups in a hierarchy: opening, creating, and the methods of groups."""
