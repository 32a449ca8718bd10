-- GC goes through what has matured by key, so that it can go on behind what the store refuses to delete.
DROP INDEX gc_orphans_age;
