-- damaged raises the error of the damage that begins at an offset. Its caller has given the records before it.
CREATE OR REPLACE FUNCTION weir.damaged(id bigint, low bigint, high bigint) RETURNS boolean
LANGUAGE plpgsql STABLE SECURITY DEFINER
:by_index
AS $$
BEGIN
    PERFORM FROM weir.decode(id, low, high);
    RETURN false;
END $$;
