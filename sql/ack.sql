SELECT weir.ack($1::text)
