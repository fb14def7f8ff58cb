package s3

import (
	"context"
	"fmt"
	"log/slog"
	"os"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/smithy-go/logging"
)

// errNoCredentials: a request was not sent, because there is nothing to sign it with. It matches
// errRefused, too: nothing was written, and trying again at once does not help.
var errNoCredentials error = noCredentials{}

type noCredentials struct{}

func (noCredentials) Error() string        { return "there are no credentials for S3" }
func (noCredentials) Is(target error) bool { return target == errRefused }

// credentials are those that the SDK finds. The SDK's error does not say where it looked, so
// Retrieve adds that.
type credentials struct{ of aws.CredentialsProvider }

// Retrieve implements aws.CredentialsProvider.
func (c credentials) Retrieve(ctx context.Context) (aws.Credentials, error) {
	found, err := c.of.Retrieve(ctx)
	if err != nil {
		return found, fmt.Errorf("%w. weir looked in %s: %w", errNoCredentials, looked(), err)
	}
	return found, nil
}

// looked says where credentials may be, as the SDK looks for them: docs.aws.amazon.com/sdkref,
// "Standardized credential providers".
func looked() string {
	profile := config.DefaultSharedConfigProfile
	if name := os.Getenv("AWS_PROFILE"); name != "" {
		profile = name
	}
	file := func(variable, usual string) string {
		if path := os.Getenv(variable); path != "" {
			return path
		}
		return usual
	}
	return fmt.Sprintf("the environment (AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, AWS_WEB_IDENTITY_TOKEN_FILE), "+
		"the profile %q in %s and %s, and asked for the role of this container or machine", profile,
		file("AWS_SHARED_CREDENTIALS_FILE", config.DefaultSharedCredentialsFilename()), file("AWS_CONFIG_FILE", config.DefaultSharedConfigFilename()))
}

// said writes what the SDK says into weir's log.
type said struct{ to *slog.Logger }

// Logf implements logging.Logger.
func (s said) Logf(kind logging.Classification, format string, args ...any) {
	level := slog.LevelWarn
	if kind == logging.Debug {
		level = slog.LevelDebug
	}
	s.to.Log(context.Background(), level, "the AWS SDK says: "+fmt.Sprintf(format, args...))
}
