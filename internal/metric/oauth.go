package metric

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// WatchOAuthKeys registers a metric of how old the keys of OAuth tokens are. fetched returns when
// they were fetched; zero: never.
func WatchOAuthKeys(registry prometheus.Registerer, fetched func() time.Time) {
	started := time.Now()
	registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "weir_oauth_keys_age_seconds",
		Help: "How long ago the keys of OAuth tokens were fetched; before the first time, how long ago weir started. Above 700 s they cannot be fetched: see the log, and look at --oauth-jwks.",
	}, func() float64 {
		at := fetched()
		if at.IsZero() {
			at = started
		}
		return time.Since(at).Seconds()
	}))
}
