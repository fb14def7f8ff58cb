-- Triggers and rights that need the functions. This runs each time after the functions are installed.

-- Creating the first trigger blocks commits until the installation is done. So the SELECT below sees what was written before, and the triggers run for
-- what is written later.
DO $$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_trigger t WHERE t.tgrelid = 'weir.state'::regclass AND t.tgname = 'made') THEN
        CREATE TRIGGER made AFTER INSERT ON weir.state FOR EACH ROW WHEN (starts_with(NEW.key, 'topic/')) EXECUTE FUNCTION weir.describe();
        CREATE TRIGGER altered AFTER UPDATE ON weir.state FOR EACH ROW WHEN (starts_with(NEW.key, 'topic/')) EXECUTE FUNCTION weir.describe();
        CREATE TRIGGER deleted AFTER DELETE ON weir.state FOR EACH ROW WHEN (starts_with(OLD.key, 'topic/')) EXECUTE FUNCTION weir.describe();
        INSERT INTO weir.topic
        SELECT d.* FROM weir.state s CROSS JOIN LATERAL weir.described(s.key, s.value) AS d WHERE starts_with(s.key, 'topic/');
    END IF;
END $$;

SELECT weir.set_rights();
