-- find_category returns the topic of a category of streams.
CREATE OR REPLACE FUNCTION weir.find_category(category text) RETURNS weir.topic
LANGUAGE plpgsql STABLE
:by_index
AS $$
DECLARE
    about weir.topic;
BEGIN
    IF category IS NULL THEN
        RAISE 'category is null' USING ERRCODE = 'null_value_not_allowed', HINT = 'Give the name of the category.';
    END IF;
    SELECT * INTO about FROM weir.topic t WHERE t.name = category;
    IF NOT FOUND THEN
        RAISE 'category "%" does not exist', left(category, 64)
        USING ERRCODE = 'WE012', HINT = format('Create it first: weir stream category create %s', left(category, 64));
    ELSIF NOT EXISTS (SELECT FROM weir.newest_state('stream/category/' || replace(about.id::text, '-', ''))) THEN
        RAISE '"%" is a topic, not a category of streams', category
        USING ERRCODE = 'WE012', HINT = 'Events of a topic have no streams: use weir.publish and weir.events. A topic cannot become a category.';
    END IF;
    RETURN about;
END $$;
