// Package batch reads, checks, patches and builds record batches in Kafka's v2 layout (magic 2),
// as the Kafka protocol guide ("Record Batch") and KIP-98 describe it. It knows nothing else of
// weir.
//
//	byte  0        8      12      16    17   21         23      27      35      43        51     55       57     61
//	      ├ base   ┼ len- ┼ lead- ┼ ma- ┼ CRC ┼ attri-   ┼ last  ┼ base  ┼ max    ┼ pro-   ┼ pro- ┼ base   ┼ re-  ┼ records …
//	      │ offset │ gth  │ er    │ gic │     │ butes    │ offset│ time- │ time-  │ ducer  │ ducer│ sequ-  │ cord │
//	      │        │      │ epoch │     │     │          │ delta │ stamp │ stamp  │ id     │ epoch│ ence   │ count│
//	      └────────┴──────┴───────┴─────┴─────┴──────────── what the CRC covers; only the records are compressed
//
// The length counts what follows it. What comes before the magic byte may be patched without a new
// CRC.
package batch
