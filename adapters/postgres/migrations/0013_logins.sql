-- A session or an API token that ended, a user who was disabled: whoever remembers who is calling forgets it at once.
-- By statement, so that the pruning of a thousand old sessions tells of each user once.
CREATE FUNCTION notify_logins_ended() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_notify('logins_changed', json_build_object('user_id', user_id)::text)
        FROM (SELECT DISTINCT user_id FROM ended) AS users_of_them;
    RETURN NULL;
END $$;

CREATE FUNCTION notify_user_changed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_notify('logins_changed', json_build_object('user_id', NEW.id)::text);
    RETURN NULL;
END $$;

CREATE TRIGGER sessions_ended AFTER DELETE ON sessions REFERENCING OLD TABLE AS ended
    FOR EACH STATEMENT EXECUTE FUNCTION notify_logins_ended();
CREATE TRIGGER api_tokens_ended AFTER DELETE ON api_tokens REFERENCING OLD TABLE AS ended
    FOR EACH STATEMENT EXECUTE FUNCTION notify_logins_ended();
CREATE TRIGGER users_changed AFTER UPDATE ON users FOR EACH ROW
    WHEN ((OLD.disabled_at, OLD.is_admin) IS DISTINCT FROM (NEW.disabled_at, NEW.is_admin))
    EXECUTE FUNCTION notify_user_changed();
