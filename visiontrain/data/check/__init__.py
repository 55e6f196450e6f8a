"""What `check` finds out about a data set once it is read: its pictures, their twins, its boxes and classes."""
