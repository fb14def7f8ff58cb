package main

// needs lists the tests that need a feature which weir does not have yet, and names the feature.
// These tests may skip themselves; the ones that cannot tell whether the feature is there are in
// skipped. Every other test must pass.
var needs = map[string]string{
	"TestTxnEtl": "transactions",

	"TestConsumeRegexShareSkipsInternal": "share groups",
	"TestShareGroup":                     "share groups",
	"TestShareGroupETL":                  "share groups",
	"TestShareGroupAckOnClose":           "share groups",
	"TestShareGroupOffsetsAdmin":         "share groups",
}

// skipped are the tests of needs that do not skip themselves, but would fail or wait for ever.
var skipped = []string{"TestTxnEtl"}
