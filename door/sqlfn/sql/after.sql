-- What functions make. This runs after the functions are installed, each time.

-- The first trigger locks out commits until the installation is done. So what was written before is seen below, and what comes later runs the
-- triggers.
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
