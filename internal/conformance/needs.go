package main

// needs lists the tests that need a feature which weir does not have yet, and names the feature.
// These tests may skip themselves; the ones that cannot tell whether the feature is there are in
// skipped. Every other test must pass.
var needs = map[string]string{
	"TestTxnEtl": "transactions",

	"Test848RegexBrokerResolves":     "KIP-848",
	"TestGroupSimple/848":            "KIP-848",
	"TestGroupETL/range/848":         "KIP-848",
	"TestGroupETL/sticky/848":        "KIP-848",
	"TestGroupETL/sticky/848/static": "KIP-848",

	"TestConsumeRegexShareSkipsInternal": "share groups",
	"TestShareGroup":                     "share groups",
	"TestShareGroupETL":                  "share groups",
	"TestShareGroupAckOnClose":           "share groups",
	"TestShareGroupOffsetsAdmin":         "share groups",
}

// skipped are the tests of needs that do not skip themselves, but would fail or wait for ever.
// Test848RegexBrokerResolves takes a broker for one with KIP-848 that advertises its key; the other
// tests of it go on with the classic protocol after the broker's answer.
var skipped = []string{"TestTxnEtl", "Test848RegexBrokerResolves"}
