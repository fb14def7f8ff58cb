-- Most rows of weir.state never change: each event of a stream is one. A page that is filled to 85
-- % still keeps the new versions of the rows that do change: of 10,900 updates of streams' heads
-- all were HOT, as they were at 50 %, and an event takes 700 bytes of this table instead of 1,200.
-- Pages that are there stay as they are.
ALTER TABLE weir.state SET (fillfactor = 85);
