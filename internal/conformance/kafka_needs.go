package main

// kafkaNeeds says of a class, or of a CLASS#METHOD, which feature it needs that weir does not have
// yet, or why it means nothing to weir. Such a class is not run; such a method is, and its result
// is not counted.
var kafkaNeeds = map[string]string{
	"clients.consumer.ShareConsumerTest":                                             "share groups",
	"clients.consumer.ShareConsumerRackAwareTest":                                    "share groups",
	"clients.consumer.ShareConsumerRackAwareTest$WithAssignmentBatchingDisabledTest": "share groups",
	"clients.admin.AdminFenceProducersTest":                                          "transactions",
	"clients.TransactionsExpirationTest":                                             "transactions",
	"clients.TransactionsWithMaxInFlightOneTest":                                     "transactions",

	"clients.MetadataVersionIntegrationTest":         "the feature levels of Kafka's controllers (UpdateFeatures), of which weir has none",
	"clients.MetricsDuringTopicCreationDeletionTest": "metrics of Kafka's controllers, which the test reads in its own process",
}
