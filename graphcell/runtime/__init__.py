"""What runs compiled code: executables, buffers, threads, the object cache."""
