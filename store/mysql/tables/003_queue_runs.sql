-- Values of work queues are written in a form that older versions of weir cannot read
-- (use/claims/codec.go). So those refuse the tables.
DO 0;
