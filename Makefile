# exacta: build, test and measure. Only Go is needed; .ci/run installs the rest.
GO ?= go
export CGO_ENABLED = 0

.PHONY: build test race soak bench lint generate test-gpu fuzz mutants head4 configs

build:
	$(GO) build ./...

# The same command that README gives.
test:
	$(GO) test ./...

# The race detector needs cgo and a C compiler.
race:
	CGO_ENABLED=1 $(GO) test -race -short -timeout 30m ./engine/... ./kernels/cpu/... ./kernels/ranks/... ./acceptance/...

# Longer runs of the random suites.
soak:
	EXACTA_SOAK=1 $(GO) test -timeout 3h ./engine/... ./kernels/... ./verify/... ./draft/... ./acceptance/...
	$(GO) test -timeout 3h ./internal/metamorphic -programs 5000 -seed 100000 -v

# The small variant of every experiment: run, reported and audited.
configs:
	EXACTA_SOAK=1 $(GO) test -timeout 60m -run 'TestConfigs' -v ./cmd/exacta

# Small changes of the verification and commit code, each compiled and run, and
# judged by the audits.
mutants:
	$(GO) run ./internal/mutants/all

bench:
	$(GO) run ./cmd/exacta bench decode --shape qwen3-0.6b
	$(GO) run ./cmd/exacta bench decode

lint:
	$(GO) vet ./...
	$(GO) vet -tags nogpu,noembed ./...
	$(GO) tool -modfile=tools/go.mod staticcheck ./...
	test -z "$$(gofmt -l .)"

# The embedded model's MTP module in 4 bits, calibrated on sources of the standard
# library (Go 1.26.8 gave those of the repository).
CORPUS = bufio database/sql encoding/json go/types net/http os strings text/template
GOSRC = $(shell $(GO) env GOROOT)/src
head4:
	mkdir -p build
	@cat $(filter-out %_test.go,$(sort $(foreach d,$(CORPUS),$(wildcard $(GOSRC)/$(d)/*.go)))) > build/corpus.txt
	$(GO) run ./cmd/exacta quantize mtp --group 32 --zero-points --corpus build/corpus.txt --pieces 256 --out engine/embedded/heads/mtp-int4

# Generated files (kernels, goldens of tables) must be up to date.
generate:
	$(GO) generate ./...

FUZZTIME ?= 10s
fuzz:
	@for p in $$($(GO) list ./...); do \
	  for f in $$($(GO) test -list '^Fuzz' $$p | grep '^Fuzz'); do \
	    echo "$$p $$f"; $(GO) test -run '^$$' -fuzz "^$$f$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 1x $$p || exit 1; done; done

# On a machine with an NVIDIA GPU. The binary runs without Go, so it can be built
# here (make test-gpu RUN=false) and carried there with engine/embedded.
RUN ?= true
test-gpu:
	mkdir -p build/gpu
	$(GO) test -c -ldflags '-s -w' -o build/gpu/cuda.test ./kernels/cuda
	if $(RUN); then EXACTA_MODEL=$(CURDIR)/engine/embedded build/gpu/cuda.test -test.v; fi
