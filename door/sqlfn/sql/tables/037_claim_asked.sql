-- These functions now identify a request by its id and the time when it was asked.
DO $$ BEGIN
    IF to_regprocedure('weir.keep_requests(text, bigint[])') IS NOT NULL THEN
        DROP FUNCTION weir.take_requests(text, bigint, bigint, int);
        DROP FUNCTION weir.keep_requests(text, bigint[]);
        DROP FUNCTION weir.answer_requests(text, bigint[], text[]);
    END IF;
END $$;
