package kafka

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// transactionStates are the states that a filter may name (TransactionState in Kafka's transaction
// coordinator).
var transactionStates = map[string]bool{
	"Empty": true, "Ongoing": true, "PrepareCommit": true, "PrepareAbort": true, "CompleteCommit": true, "CompleteAbort": true,
	"Dead": true, "PrepareEpochFence": true,
}

// listTransactions lists no transactions: weir has none. States in the filter that Kafka does not
// know are returned, once each.
func (s *Server) listTransactions(_ context.Context, _ *request, in *kmsg.ListTransactionsRequest) *kmsg.ListTransactionsResponse {
	out := in.ResponseKind().(*kmsg.ListTransactionsResponse)
	mentions := make(map[string]bool)
	for _, state := range in.StateFilters {
		if !transactionStates[state] && first(mentions, state) {
			out.UnknownStateFilters = append(out.UnknownStateFilters, state)
		}
	}
	return out
}
