"""Between a home and its archive: tar, zstd and checksums, as streams of flat memory."""
