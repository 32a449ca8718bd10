-- Made by an operation that this database has never heard of, as after a restore from a backup: it waits longer.
ALTER TABLE gc_orphans ADD COLUMN unknown boolean NOT NULL DEFAULT false;

-- Since when its heartbeats have come without a gap: proof that whoever was silent meanwhile would have been heard.
ALTER TABLE nodes ADD COLUMN heard_since timestamptz;

-- What its engine's data is told apart by.
ALTER TABLE nodes ADD COLUMN marker text;
