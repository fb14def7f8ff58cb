-- add_triggers creates the triggers that make acks and positions durable at commit, if they are missing. Creating them waits for open transactions that
-- have called weir.ack or weir.commit_offset, and blocks other sessions meanwhile. If it would have to wait, it creates none and returns false. Every start calls it.
CREATE OR REPLACE FUNCTION weir.add_triggers() RETURNS boolean
LANGUAGE plpgsql
:pinned
SET lock_timeout = '100ms'
AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_trigger t WHERE t.tgrelid = 'weir.consumed'::regclass AND t.tgname = 'durably') THEN
        CREATE CONSTRAINT TRIGGER durably AFTER INSERT ON weir.acked
        DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION weir.commit_durably();
        CREATE CONSTRAINT TRIGGER durably AFTER INSERT OR UPDATE ON weir.consumed
        DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION weir.commit_durably();
    END IF;
    IF NOT EXISTS (SELECT FROM pg_trigger t WHERE t.tgrelid = 'weir.nacked'::regclass AND t.tgname = 'nacked_durably') THEN
        CREATE CONSTRAINT TRIGGER nacked_durably AFTER UPDATE OR DELETE ON weir.nacked -- an ack or a nack that uses the row of an earlier one
        DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION weir.commit_durably();
    END IF;
    RETURN true;
EXCEPTION
    WHEN lock_not_available THEN
        RETURN false;
    WHEN duplicate_object THEN
        RETURN true; -- another process has just created them
END $$;
