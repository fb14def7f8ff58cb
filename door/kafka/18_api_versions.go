package kafka

import (
	"context"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// apiVersions lists the APIs that weir serves. Of features only group.version is advertised, the
// consumer protocol of KIP-848: others would turn on transactions and group protocols that weir
// does not have.
func (s *Server) apiVersions(_ context.Context, _ *request, in *kmsg.ApiVersionsRequest) *kmsg.ApiVersionsResponse {
	out := in.ResponseKind().(*kmsg.ApiVersionsResponse)
	if in.Version >= 3 && !(softwareName(in.ClientSoftwareName) && softwareName(in.ClientSoftwareVersion)) {
		out.ErrorCode = kerr.InvalidRequest.Code
		return out
	}
	out.ApiKeys = s.versions
	if in.Version >= 3 {
		supported, finalized := kmsg.NewApiVersionsResponseSupportedFeature(), kmsg.NewApiVersionsResponseFinalizedFeature()
		supported.Name, supported.MinVersion, supported.MaxVersion = "group.version", 0, 1
		finalized.Name, finalized.MinVersionLevel, finalized.MaxVersionLevel = "group.version", 1, 1
		out.SupportedFeatures, out.FinalizedFeatures = append(out.SupportedFeatures, supported), append(out.FinalizedFeatures, finalized)
		out.FinalizedFeaturesEpoch = 1
	}
	return out
}

// unsupportedApiVersions answers a request of a newer version than ours. The answer has version 0,
// which every client can read.
func (s *Server) unsupportedApiVersions(context.Context, *request) kmsg.Response {
	out := kmsg.NewPtrApiVersionsResponse()
	out.ErrorCode = kerr.UnsupportedVersion.Code
	out.ApiKeys = s.versions
	return out
}

// versionsOf is the table of apis as ApiVersions shows it.
func versionsOf(table map[int16]*api) []kmsg.ApiVersionsResponseApiKey {
	var rows []kmsg.ApiVersionsResponseApiKey
	for n, a := range table {
		row := kmsg.NewApiVersionsResponseApiKey()
		row.ApiKey, row.MinVersion, row.MaxVersion = n, a.min, a.max
		rows = append(rows, row)
	}
	slices.SortFunc(rows, func(a, b kmsg.ApiVersionsResponseApiKey) int { return int(a.ApiKey) - int(b.ApiKey) })
	return rows
}

// softwareName reports whether Kafka accepts s as the name or version of a client's software:
// letters and digits, with dashes and dots in between.
func softwareName(s string) bool {
	for i := range len(s) {
		c := s[i]
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9':
		case (c == '-' || c == '.') && i > 0 && i < len(s)-1:
		default:
			return false
		}
	}
	return s != ""
}
