-- So that whoever asks, or connects again, is told what live events tell: what is being done with the bytes, how fast, and
-- how long ago that was said.
ALTER TABLE operations
    ADD COLUMN stage text,
    ADD COLUMN bytes_per_second bigint,
    ADD COLUMN told_at timestamptz;
