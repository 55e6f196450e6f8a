"""Settings: the table of keys, how they are read, and what is generated from them."""
