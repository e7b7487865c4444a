package objstore_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/varvelog/varve/tier/objstore"
)

func TestWhatTheAWSLibrarySaysGoesToTheLog(t *testing.T) {
	machine := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) }))
	defer machine.Close()
	none := filepath.Join(t.TempDir(), "none")
	for name, value := range map[string]string{
		"AWS_EC2_METADATA_SERVICE_ENDPOINT": machine.URL, "AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": "", "AWS_PROFILE": "",
		"AWS_SHARED_CREDENTIALS_FILE": none, "AWS_CONFIG_FILE": none, "AWS_EC2_METADATA_DISABLED": "false",
		"AWS_CONTAINER_CREDENTIALS_FULL_URI": "", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI": "", "AWS_WEB_IDENTITY_TOKEN_FILE": "",
	} {
		t.Setenv(name, value)
	}
	var out bytes.Buffer
	log := slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug}))
	_, err := objstore.Open(context.Background(), "s3://bucket/varve?region=eu-central-1", objstore.Options{Logger: log})
	if !errors.Is(err, objstore.ErrDenied) || !strings.Contains(err.Error(), "set AWS_ACCESS_KEY_ID") || strings.Contains(err.Error(), "\n") {
		t.Errorf("no credentials: %v", err)
	}
	if !strings.Contains(out.String(), "falling back to IMDSv1") {
		t.Errorf("the log has %q", out.String())
	}
}
