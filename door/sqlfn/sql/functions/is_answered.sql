-- is_answered reports whether the message of a receipt was acknowledged, or given back with this receipt, and the mover has not yet applied that.
CREATE OR REPLACE FUNCTION weir.is_answered(fields text[], receipt text) RETURNS boolean
LANGUAGE plpgsql STABLE
:by_index
AS $$
DECLARE
    p bigint := fields[2];
    o bigint := fields[3];
BEGIN
    RETURN EXISTS (SELECT FROM weir.acked a WHERE a.queue = fields[1] AND a.partition = p AND a."offset" = o)
       AND NOT EXISTS (SELECT FROM weir.nacked n WHERE n.queue = fields[1] AND n.partition = p AND n."offset" = o AND n.receipt <> is_answered.receipt);
END $$;
