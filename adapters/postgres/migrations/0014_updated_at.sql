-- Of two states of a row, the later one has the later updated_at, strictly. A transaction's time is that of its beginning:
-- one that waited for the row's lock wrote an earlier time than the one it waited for.
CREATE OR REPLACE FUNCTION workspaces_touch() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.updated_at := GREATEST(clock_timestamp(), OLD.updated_at + interval '1 microsecond');
    RETURN NEW;
END $$;
