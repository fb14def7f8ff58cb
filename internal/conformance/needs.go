package main

// needs lists the tests that want what weir does not do yet, and what that is. They may skip themselves; those that
// cannot tell are skipped for them. Every other test must pass.
var needs = map[string]string{
	"TestTxnEtl": "transactions",

	"TestSCRAMAuth":               "SCRAM",
	"TestSCRAMAuthBadCredentials": "SCRAM",

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

// skipped are those of needs that would fail, or wait for ever, where others skip themselves.
var skipped = []string{"TestTxnEtl"}
