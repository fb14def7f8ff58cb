INSERT INTO body (bytes)
VALUES (?1)
