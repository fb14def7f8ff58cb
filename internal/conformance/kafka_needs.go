package main

// kafkaNeeds says of a class, or of a CLASS#METHOD, which feature it needs that weir does not have
// yet, or what it expects of Kafka that weir does in another way. Such a class is not run; such a
// method is, unless it needs what comes next, and its result is not counted.
var kafkaNeeds = map[string]string{
	"clients.consumer.ShareConsumerTest":                                             "next: share groups",
	"clients.consumer.ShareConsumerRackAwareTest":                                    "next: share groups",
	"clients.consumer.ShareConsumerRackAwareTest$WithAssignmentBatchingDisabledTest": "next: share groups",

	"clients.admin.AdminFenceProducersTest":                                      transactions,
	"clients.TransactionsExpirationTest":                                         transactions,
	"clients.TransactionsWithMaxInFlightOneTest":                                 transactions,
	"clients.producer.ProducerIntegrationTest#testTransactionWithAndWithoutSend": transactions,

	"streams.integration.EOSUncleanShutdownIntegrationTest":                                 transactions,
	"streams.integration.EosIntegrationTest":                                                transactions,
	"streams.integration.GlobalKTableEOSIntegrationTest":                                    transactions,
	"streams.integration.SmokeTestDriverIntegrationTest":                                    transactions,
	"streams.integration.SmokeTestDriverIntegrationTest$WithAssignmentBatchingDisabledTest": transactions,
	"streams.integration.StandbyTaskEOSIntegrationTest":                                     transactions,
	"streams.integration.StandbyTaskEOSMultiRebalanceIntegrationTest":                       transactions,

	"streams.integration.VersionedKeyValueStoreIntegrationTest#shouldManualUpgradeFromNonVersionedNonTimestampedToVersioned": newest,
	"streams.integration.VersionedKeyValueStoreIntegrationTest#shouldManualUpgradeFromNonVersionedTimestampedToVersioned":    newest,
	"streams.integration.PurgeRepartitionTopicIntegrationTest#shouldRestoreState":                                            "a setting of topics that only Kafka's own tests make (internal.segment.bytes): weir has no segments",

	"streams.integration.KTableSourceTopicRestartIntegrationTest#shouldRestoreAndProgressWhenTopicWrittenToDuringRestorationWithEosV2Enabled": transactions,

	"streams.integration.RebalanceProtocolMigrationIntegrationTest":                                    streamsGroups,
	"streams.integration.RebalanceProtocolMigrationIntegrationTest$WithAssignmentBatchingDisabledTest": streamsGroups,

	"clients.MetadataVersionIntegrationTest":         "the feature levels of Kafka's controllers (UpdateFeatures), of which weir has none",
	"clients.MetricsDuringTopicCreationDeletionTest": "metrics of Kafka's controllers, which the test reads in its own process",

	"clients.ClientRebootstrapTest#testProducerRebootstrap":                                                            "expects that a record is lost: an unclean election of a leader without it. weir still has it",
	"clients.admin.AutoTopicCreationTest#testAutoCreateTopicWithExplicitBrokerConfig":                                  replicas,
	"clients.admin.AutoTopicCreationTest#testAutoCreateTopicWithImplicitBrokerConfig":                                  "a setting of Kafka's controllers alone",
	"clients.admin.AutoTopicCreationTest#testAutoCreateTopicWithMixedConfig":                                           replicas,
	"clients.admin.RackAwareAutoTopicCreationTest#testAutoCreateTopic":                                                 replicas,
	"clients.admin.DescribeProducersWithBrokerIdTest#testDescribeProducersWithInvalidBrokerId":                         "every broker answers for every partition",
	"clients.admin.DescribeProducersWithBrokerIdTest#testDescribeProducersDefaultRoutesToLeader":                       "asks twice when a producer last appended, and expects the same millisecond: weir tells how long ago that was, by the clock of the store",
	"clients.admin.DescribeProducersWithBrokerIdTest#testDescribeProducersFromFollower":                                replicas,
	"clients.admin.StaticBrokerConfigTest#testInternalConfigsDoNotReturnForCreateTopics":                               "topics have a setting that Kafka does not have: weir.linger.ms",
	"clients.consumer.ConsumerIntegrationTest#testLeaderEpoch":                                                         "the leader epoch goes up when the store was restored, not when a broker stops",
	"clients.consumer.PlaintextConsumerTest#testClassicConsumerCloseOnBrokerShutdown":                                  assigned,
	"clients.producer.ProducerIntegrationTest#testUniqueProducerIds":                                                   "sends a version of InitProducerId that is not final (6, KIP-939)",
	"clients.producer.ProducerSendWhileDeletionTest#testSendWithTopicReassignmentIsMidWay":                             leaders,
	"clients.admin.ListOffsetsIntegrationTest#testThreeRecordsInSeparateBatchHavingDifferentCompressionTypeWithServer": leaders,
	"clients.admin.ListOffsetsIntegrationTest#testThreeRecordsInOneBatchHavingDifferentCompressionTypeWithServer":      leaders,
	"clients.admin.ListOffsetsIntegrationTest#testThreeNonCompressedRecordsInOneBatch":                                 leaders,
	"clients.admin.ListOffsetsIntegrationTest#testThreeNonCompressedRecordsInSeparateBatch":                            leaders,
	"clients.admin.ListOffsetsIntegrationTest#testThreeCompressedRecordsInOneBatch":                                    leaders,
	"clients.admin.ListOffsetsIntegrationTest#testThreeCompressedRecordsInSeparateBatch":                               leaders,
	"clients.admin.DynamicGroupConfigIntegrationTest#testDescribeGroupConfigSynonymsWithoutBrokerSynonym":              "next: share groups (share.auto.offset.reset)",
	"clients.admin.DynamicGroupConfigIntegrationTest#testDescribeGroupConfigSynonymsWithBrokerSynonym":                 dynamic,
	"clients.admin.DynamicGroupConfigIntegrationTest#testDescribeGroupConfigSynonymsWithStaticBrokerConfig":            dynamic,
	"clients.producer.ProducerFailureHandlingTest#testTooLargeRecordWithAckOne":                                        "a default for all topics (message.max.bytes): weir has max.message.bytes for each topic",
	"clients.producer.ProducerFailureHandlingTest#testNotEnoughReplicasAfterBrokerShutdown":                            replicas,
	"clients.admin.DescribeAuthorizedOperationsTest":                                                                   "users and passwords of PLAIN that the test chooses, and a class in the broker (authorizer.class.name)",
	"clients.security.GroupAuthorizerIntegrationTest":                                                                  "a class in the broker (principal.builder.class), and ACLs that are set inside a controller",
	"clients.admin.ClientTelemetryTest#testIntervalMsParser":                                                           "settings of client metrics (KIP-714), which weir does not collect",
	"server.quota.CustomQuotaCallbackTest#testCustomQuotaCallbackWithControllerServer":                                 "a class in the broker (client.quota.callback.class)",
}

const (
	next          = "next: " // begins what weir is to have: cases that need it are not run
	transactions  = next + "transactions"
	streamsGroups = next + "Streams groups (KIP-1071)"
	assigned      = "passes if the consumer has no partition 200 ms after it subscribed; weir has given it one by then, and a consumer with auto-commit waits in close for a coordinator to commit at (the test of the new protocol turns auto-commit off for that reason)"
	replicas      = "copies of a partition at several brokers: the store keeps the records safe"
	leaders       = "moves a partition's leader to a broker of its choice, or ends a reassignment half-way: leaders follow from which brokers live"
	newest        = "expects that Kafka keeps the newest records of a compacted topic; weir compacts them, too (the test gives min.compaction.lag.ms to Streams without the prefix topic., so the topic does not have it)"
	dynamic       = "settings of a broker that change while it runs, and consumer.assignment.interval.ms: weir assigns partitions at once"
)
