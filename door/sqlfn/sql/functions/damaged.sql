-- damaged raises the error for damage that begins at an offset. Its caller has already returned the records before it.
CREATE OR REPLACE FUNCTION weir.damaged(id bigint, low bigint, high bigint) RETURNS boolean
LANGUAGE plpgsql STABLE SECURITY DEFINER
:by_index
AS $$
BEGIN
    PERFORM FROM weir.decode(id, low, high);
    RETURN false;
END $$;
