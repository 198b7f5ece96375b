# xnord: build, test and run. `make help` lists the targets.
#
# Layers: compute <- proto <- server, enforced by include paths. CUDA is used when nvcc is found
# (CUDA=0 builds without; CUDA=1 insists). One folder of objects a variant: BUILD=build. V=1 shows
# the commands. PROFILE=1 puts line information into the GPU code, for profilers.

BUILD    ?= build
VARIANT  ?=
CC       ?= cc
AR       ?= ar
NVCC     ?= $(firstword $(shell command -v nvcc 2>/dev/null) $(wildcard /usr/local/cuda/bin/nvcc))
CUDA     ?= auto
OPENMP   ?= auto
FUZZ_ROUNDS ?= 100000
FUZZ_SEED   ?= 1
FAULTS      ?= 300000
WERROR   ?= 0
V        ?= 0
PROFILE  ?= 0
# The one place that has it; its date is the manual page's.
VERSION  := $(shell sed -n '1s/.*(\(.*\)).*/\1/p' deploy/changelog)
ifeq ($(VERSION),)
$(error deploy/changelog is not there or has no version in its first line)
endif
DATE     := $(shell date -u +%F -d "$$(sed -n 's/^ -- .*>  //p;T;q' deploy/changelog)")
PKG_CONFIG ?= pkg-config

ifeq ($(CUDA),auto)
USE_CUDA := $(if $(NVCC),1,0)
else
USE_CUDA := $(CUDA)
endif
ifeq ($(USE_CUDA)$(NVCC),1)
$(error CUDA=1, but there is no nvcc on the path or in /usr/local/cuda/bin: install the CUDA toolkit, 12.0 or later, or name it by NVCC=, or leave CUDA=1 out)
endif

# Evaluated once, when first used: before `make deps` has run, compiler and pkg-config may not be
# there yet.
once = $(eval $(1) := $(2))$($(1))
comma := ,

# With the compiler's OpenMP, where it has its library: clang's is a package of its own.
ifeq ($(OPENMP),auto)
USE_OPENMP = $(call once,USE_OPENMP,$(shell echo 'int main(void) { return 0; }' | \
               $(CC) -fopenmp -x c -o /dev/null - 2>/dev/null && echo 1))
else
USE_OPENMP := $(filter 1,$(OPENMP))
endif

OPT      ?= -O3
WARN     := -Wall -Wextra -Wpedantic -Wshadow -Wstrict-prototypes -Wmissing-prototypes \
            -Wpointer-arith -Wvla -Wwrite-strings -Wformat=2 -Wundef $(if $(filter 1,$(WERROR)),-Werror)
CFLAGS   ?= -g
# A multiplication and an addition are one operation where the code says so, and nowhere else: else
# what a sum rounds to would depend on the compiler, and on how it unrolled a loop.
XN_CFLAGS = -std=c11 -D_GNU_SOURCE -fno-math-errno -ffp-contract=off -fvisibility=hidden -pthread \
            $(OPT) $(WARN) $(if $(USE_OPENMP),-fopenmp,-Wno-unknown-pragmas) $(SANITIZE) $(CFLAGS)
XN_LDFLAGS = -pthread -gz $(if $(USE_OPENMP),-fopenmp) $(SANITIZE) $(LDFLAGS)
DEPFLAGS  = -MMD -MP

# What is being made, in a line each, and which of how many it is; with V=1 its command instead. A
# dry run, in which nothing is counted, says how many there are.
Q     = $(if $(filter 1,$(V)),,@)
say   = $(if $(filter 1,$(V)),,@printf '  %-5s %7s %s\n' $(1) $(step) $(2))
step  = $(if $(STEPS),$(eval DONE += .)$(words $(DONE))/$(STEPS))
STEPS = $(if $(findstring n,$(firstword -$(MAKEFLAGS))),,$(call once,STEPS,$(shell \
          $(MAKE) -n$(findstring B,$(firstword -$(MAKEFLAGS))) V=0 STEPS= $(MAKEOVERRIDES) $(MAKECMDGOALS) 2>/dev/null | grep -c "^printf '  %-5s")))

# How a target makes others: on all cores, unless -j or a make above says on how many.
BY_ITSELF = --no-print-directory $(if $(filter -j% --jobserver%,$(MAKEFLAGS)),,-j$(shell nproc))

# Sources and headers of a folder and of the folders in it, two deep.
tree        = $(foreach end,$(2),$(wildcard $(1)/*.$(end) $(1)/*/*.$(end) $(1)/*/*/*.$(end)))
include_of  = $(patsubst %/,-I%,$(sort $(dir $(call tree,$(1),h cuh))))

CPU_INC     := $(call include_of,compute/cpu)
CUDA_INC    := $(call include_of,compute/cuda)
COMPUTE_INC := -Icompute/include $(call include_of,compute/core)
PROTO_INC   := -Icompute/include -Iproto/include $(call include_of,proto/src)
SERVER_INC  := -Icompute/include -Iproto/include $(call include_of,server)
TEST_INC    := $(COMPUTE_INC) $(CPU_INC) -Iproto/include $(call include_of,proto/src) \
               $(call include_of,server) -Itests -Itests/fuzz -Itests/networks

COMPUTE_SRC := $(call tree,compute/core,c) $(call tree,compute/ref,c) $(call tree,compute/cpu,c)
PROTO_SRC   := $(call tree,proto/src,c)
SERVER_SRC  := $(filter-out server/main.c,$(call tree,server,c))
CUDA_SRC    := $(call tree,compute/cuda,cu)
TEST_SRC    := $(wildcard tests/*.c tests/fault/*.c tests/fuzz/*.c) \
               $(foreach folder,unit backends http networks,$(call tree,tests/$(folder),c))
# What compute/ alone is tested with, for a cross-compiler without the server's libraries.
COMPUTE_TEST_SRC := tests/main.c tests/output.c $(wildcard tests/backends/*.c tests/backends/cpu/*.c) \
               $(filter-out %/digits_test.c %/deep_test.c,$(wildcard tests/networks/*.c)) \
               $(patsubst %,tests/unit/compute/%_test.c,arena arith conv cpus half mem parallel tensor weights)
TEST_CUDA_SRC := $(wildcard tests/backends/cuda/*.cu)

obj = $(patsubst %,$(BUILD)/obj/%.o,$(1))

# --cflags fails where a module's private dependencies have no .pc file, although nothing here needs
# them (libmicrohttpd asks for gnutls's): then the module's own include folder does.
pkg_cflags = $(shell $(PKG_CONFIG) --cflags $(1) 2>/dev/null || \
               { folder=$$($(PKG_CONFIG) --variable=includedir $(1)) && echo "-I$$folder"; })
SERVER_CFLAGS = $(call once,SERVER_CFLAGS,$(call pkg_cflags,libmicrohttpd) $(call pkg_cflags,gnutls) $(call pkg_cflags,libxxhash) $(call pkg_cflags,zlib))
PROTO_CFLAGS = $(call once,PROTO_CFLAGS,$(call pkg_cflags,jansson) $(call pkg_cflags,libjpeg) $(call pkg_cflags,libpng))
CHECK_CFLAGS = $(call once,CHECK_CFLAGS,$(call pkg_cflags,check))
SERVER_LIBS = $(call once,SERVER_LIBS,$(shell $(PKG_CONFIG) --libs libmicrohttpd jansson gnutls libxxhash zlib libjpeg libpng))
CHECK_LIBS  = $(call once,CHECK_LIBS,$(shell $(PKG_CONFIG) --libs check))

# ---- CUDA ----
ifeq ($(USE_CUDA),1)
CUDA_HOME   ?= $(patsubst %/bin/nvcc,%,$(realpath $(NVCC)))
CUDA_LIBDIR ?= $(firstword $(wildcard $(CUDA_HOME)/targets/x86_64-linux/lib $(CUDA_HOME)/lib64 \
               /usr/lib/x86_64-linux-gnu))
# Machine code for the chips with kernels of their own, PTX for those still to come. One chip only,
# for a faster build: make CUDA_GENCODE=-gencode=arch=compute_90a,code=sm_90a
CUDA_KNOWN  = $(call once,CUDA_KNOWN,$(shell $(NVCC) --list-gpu-arch))
cuda_gencode = $(if $(filter compute_$(patsubst %a,%,$(1)),$(CUDA_KNOWN)),-gencode=arch=compute_$(1)$(comma)code=sm_$(1))
CUDA_GENCODE ?= $(call cuda_gencode,75) $(call cuda_gencode,80) $(call cuda_gencode,90a) \
               -gencode=arch=compute_80,code=compute_80
# Drivers before 550 cannot read what --compress-mode makes; those of CUDA 13 are 580 and later.
NVCC_MAJOR  = $(call once,NVCC_MAJOR,$(shell $(NVCC) --version | sed -n 's/.*release \([0-9]*\).*/\1/p'))
CUDA_COMPRESS = $(if $(filter 10 11 12,$(NVCC_MAJOR)),-Xfatbin=-compress-all,--compress-mode=size)
XN_NVCCFLAGS = -std=c++17 -O3 $(if $(filter 1,$(PROFILE)),-lineinfo) $(CUDA_COMPRESS) \
               $(CUDA_GENCODE) -DXN_HAVE_CUDA=1 \
               -Xcompiler=-fvisibility=hidden,-pthread,-Wall,-Wextra $(NVCCFLAGS)
CUDA_LIBS   := -L$(CUDA_LIBDIR) -lcudart_static -lrt -ldl -lstdc++
CUDA_OBJ    := $(call obj,$(CUDA_SRC))
else
CUDA_OBJ    :=
endif

COMPUTE_OBJ := $(call obj,$(COMPUTE_SRC)) $(CUDA_OBJ)
PROTO_OBJ   := $(call obj,$(PROTO_SRC))
SERVER_OBJ  := $(call obj,$(SERVER_SRC))
MAIN_OBJ    := $(call obj,server/main.c)
TEST_OBJ    := $(call obj,$(TEST_SRC)) $(if $(filter 1,$(USE_CUDA)),$(call obj,$(TEST_CUDA_SRC)))
LIBS         = $(CUDA_LIBS) $(SERVER_LIBS) -lm

# ---- what makes what ----
# The command for each kind of thing. A file in $(MADE_WITH) has the one that was used last, and what
# is made by it depends on that file: with other flags, another compiler, other members of an archive
# than last time exactly that is made again, and nothing when nothing changed. Whether a command
# differs is found out while the Makefile is read, so make -n tells the truth.
MADE_WITH := $(BUILD)/made-with
command.compute    = $(CC) $(XN_CFLAGS) $(COMPUTE_INC) $(CPU_INC)
command.registry   = $(command.compute) -DXN_HAVE_CUDA=$(if $(filter 1,$(USE_CUDA)),1,0)
command.compute-cu = $(NVCC) $(XN_NVCCFLAGS) $(COMPUTE_INC) $(CUDA_INC)
command.proto      = $(CC) $(XN_CFLAGS) $(PROTO_INC) $(PROTO_CFLAGS)
command.server     = $(CC) $(XN_CFLAGS) $(SERVER_INC) $(SERVER_CFLAGS) -DXN_VERSION='"$(VERSION)"'
command.files      = $(command.server) -DXN_FILES='"$(BUILD)/files"'
command.tests      = $(CC) $(XN_CFLAGS) $(TEST_INC) $(CHECK_CFLAGS) -DXN_VERSION='"$(VERSION)"'
command.tests-cu   = $(command.compute-cu) -Itests $(filter -I%,$(CHECK_CFLAGS))
command.tool       = $(CC) $(XN_CFLAGS) $(XN_LDFLAGS)
command.manual     = $(command.tool) $(SERVER_INC) -DXN_VERSION='"$(VERSION)"' -DXN_DATE='"$(DATE)"'
link               = $(CC) $(XN_LDFLAGS)
command.link       = $(link) $(CUDA_LIBS) $(SERVER_LIBS)
command.link-tests = $(command.link) $(CHECK_LIBS) $(TEST_OBJ)
command.link-compute-tests = $(link) $(CUDA_LIBS) $(CHECK_LIBS)
command.libxn_compute = $(AR) rcs $(COMPUTE_OBJ)
command.libxn_proto   = $(AR) rcs $(PROTO_OBJ)
command.libxn_server  = $(AR) rcs $(SERVER_OBJ)

# Empty when both are the same.
differ = $(subst x$(1)x,,x$(2)x)$(subst x$(2)x,,x$(1)x)
quoted = '$(subst ','\'',$(1))'
.SECONDEXPANSION:
$(MADE_WITH)/%: $$(if $$(call differ,$$(strip $$(file <$$@)),$$(strip $$(command.$$*))),FORCE)
	@mkdir -p $(@D)
	@printf '%s\n' $(call quoted,$(strip $(command.$*))) >$@
FORCE:
# Named here, so that make takes none of them for an intermediate file, which may be missing.
made-with: $(patsubst command.%,$(MADE_WITH)/%,$(filter command.%,$(.VARIABLES)))

.DEFAULT_GOAL := all
.PHONY: FORCE made-with all deps build test check simulate demo run bench bench-http bench-http-network bench-http-cache bench-http-first bench-http-devices bench-overload bench-probe bench-paper bench-json bench-pictures bench-search asan tsan test-alloc test-arm64 test-mhd1 fuzz stress bench-gpu \
        bench-gpu-runs bench-gpu-real bench-gpu-shapes \
        bench-cpu-real format lint install uninstall manual dist deb clean help test-binary compute-lib proto-lib \
        openvino test-clients test-networks test-openapi test-image test-package test-page test-readme \
        test-monitoring test-manifests test-cluster bench-cluster

all: deps ## set up, build build/xnord
	@$(MAKE) $(BY_ITSELF) build

deps: ## install the system packages that are missing (does nothing when all are there)
	@deploy/install-deps.sh

build: $(BUILD)/xnord
test-binary: $(BUILD)/xnord-tests $(BUILD)/alloc-fault.so
compute-lib: $(BUILD)/libxn_compute.a
proto-lib: $(BUILD)/libxn_proto.a

test: deps ## set up, build and pass all tests
	@$(MAKE) $(BY_ITSELF) check

# Worlds of the simulator that check runs, in two processes. ThreadSanitizer does not know its fibers.
SIMULATE_SEEDS ?= 10000
simulates = $(if $(findstring thread,$(SANITIZE)),,$(BUILD)/xnord-simulate)
check: $(BUILD)/xnord $(BUILD)/xnord-tests $(BUILD)/alloc-fault.so $(simulates)
	$(if $(simulates),@( half=$$(($(SIMULATE_SEEDS) / 2)); \
	  $(BUILD)/xnord-simulate --seed 1 --seeds $$half & \
	  $(BUILD)/xnord-simulate --seed $$((half + 1)) --seeds $$half && \
	  $(BUILD)/xnord-simulate --allocations --seed 1 --seeds 2; status=$$?; \
	  wait $$! && exit $$status ) 2>$(BUILD)/simulate.log || \
	  { tail -n 100 $(BUILD)/simulate.log; exit 1; })
	@XNORD_BIN=$(abspath $(BUILD)/xnord) XNORD_TEST_LOG=$(abspath $(BUILD)/test-output.log) $(BUILD)/xnord-tests

# Objects and archives of what is to be made: not the files that say how.
parts = $(filter %.o %.a,$^)

$(BUILD)/xnord: $(MAIN_OBJ) $(BUILD)/libxn_server.a $(BUILD)/libxn_proto.a $(BUILD)/libxn_compute.a $(MADE_WITH)/link
	$(call say,LD,$@)
	$(Q)$(link) -o $@ $(parts) $(LIBS)

$(BUILD)/xnord-tests: $(TEST_OBJ) $(BUILD)/libxn_server.a $(BUILD)/libxn_proto.a $(BUILD)/libxn_compute.a $(MADE_WITH)/link-tests
	$(call say,LD,$@)
	$(Q)$(link) -o $@ $(parts) $(CHECK_LIBS) $(LIBS)

# Preloaded into the daemon by the tests of failing allocations; without sanitizers, which have an
# allocator of their own.
$(BUILD)/alloc-fault.so: tests/fault/preload/alloc.c tests/fault/alloc_fault.h
	@mkdir -p $(@D)
	$(call say,CC,$<)
	$(Q)$(CC) -std=c11 -O2 $(WARN) $(CFLAGS) -shared -fPIC -o $@ $<

test-alloc: deps ## the whole daemon while 300000 allocations fail at random (FAULTS)
	@$(MAKE) $(BY_ITSELF) $(BUILD)/xnord test-binary
	XNORD_TEST_FAULTS=$(FAULTS) XNORD_BIN=$(abspath $(BUILD)/xnord) CK_VERBOSITY=verbose \
	  $(BUILD)/xnord-tests fault_daemon

# Long runs against a real daemon, with the black-box client of the tests.
STRESS_SRC := tests/main.c tests/output.c $(wildcard tests/stress/*.c) \
              $(patsubst %,tests/http/client/%.c,client daemon answer encode json problem)
$(BUILD)/xnord-stress: $(call obj,$(STRESS_SRC)) $(MADE_WITH)/link-compute-tests
	$(call say,LD,$@)
	$(Q)$(link) -o $@ $(parts) $(CHECK_LIBS) -lm

SECONDS ?= 60
simulate: deps ## the engine in worlds drawn from seeds, for SECONDS (60); SEED=n: that one, with its last events if it fails
	@$(MAKE) $(BY_ITSELF) $(BUILD)/xnord-simulate
	$(BUILD)/xnord-simulate $(if $(SEED),--seed $(SEED),--seconds $(SECONDS))

# The engine's own code, its threads replaced at the linker (tests/simulation/fibers.h).
SIMULATED := $(patsubst %,pthread_%,create join self setname_np mutex_init mutex_destroy mutex_lock \
               mutex_trylock mutex_unlock cond_init cond_destroy cond_wait cond_timedwait cond_signal \
               cond_broadcast) fsync xn_mem_held
SIMULATE_SRC := $(wildcard tests/simulation/*.c)
$(BUILD)/xnord-simulate: $(call obj,$(SIMULATE_SRC)) $(BUILD)/libxn_server.a $(BUILD)/libxn_proto.a $(BUILD)/libxn_compute.a $(MADE_WITH)/link
	$(call say,LD,$@)
	$(Q)$(link) $(patsubst %,-Wl$(comma)--wrap=%,$(SIMULATED)) -o $@ $(parts) $(LIBS)

$(BUILD)/compute-tests: $(call obj,$(COMPUTE_TEST_SRC)) $(BUILD)/libxn_compute.a $(MADE_WITH)/link-compute-tests
	$(call say,LD,$@)
	$(Q)$(link) -o $@ $(parts) $(CHECK_LIBS) $(CUDA_LIBS) -lm

$(BUILD)/libxn_compute.a: $(COMPUTE_OBJ)
$(BUILD)/libxn_proto.a: $(PROTO_OBJ)
$(BUILD)/libxn_server.a: $(SERVER_OBJ)
$(BUILD)/%.a: $(MADE_WITH)/%
	@rm -f $@
	$(call say,AR,$@)
	$(Q)$(AR) rcs $@ $(parts)

$(BUILD)/obj/compute/%.c.o: compute/%.c $(MADE_WITH)/compute
	@mkdir -p $(@D)
	$(call say,CC,$<)
	$(Q)$(command.compute) $(DEPFLAGS) -c -o $@ $<
# Alone asks whether CUDA is there.
$(BUILD)/obj/compute/core/registry.c.o: compute/core/registry.c $(MADE_WITH)/registry
	@mkdir -p $(@D)
	$(call say,CC,$<)
	$(Q)$(command.registry) $(DEPFLAGS) -c -o $@ $<
# ptxas reports every wgmma.fence it adds by itself, which costs nothing (C7519), and launch bounds
# that a chip with fewer threads cannot keep; all else is shown. A kernel that keeps registers in
# memory is a fault outside this list: reported, and with WERROR=1 the end of the build.
MAY_SPILL = $(patsubst %,compute/cuda/%.cu,ops/op pack/pack real/real_gemm \
              stage/fused_stage stage/strided stem/stem wgmma/warp_specialised)
warn_spills = $(if $(filter $(MAY_SPILL),$<),,-Xptxas=-warn-spills)
$(BUILD)/obj/compute/%.cu.o: compute/%.cu $(MADE_WITH)/compute-cu
	@mkdir -p $(@D)
	$(call say,NVCC,$<)
	$(Q)$(command.compute-cu) $(warn_spills) -MMD -MP -MF $(@:.o=.d) -c -o $@ $< \
	  2>$@.log; status=$$?; grep -vE 'C7519|minnctapersm' $@.log >&2; \
	  if [ $$status = 0 ] && [ '$(WERROR)' = 1 ] && grep -q 'Registers are spilled' $@.log; then rm -f $@; exit 1; fi; \
	  exit $$status
$(BUILD)/obj/proto/%.c.o: proto/%.c $(MADE_WITH)/proto
	@mkdir -p $(@D)
	$(call say,CC,$<)
	$(Q)$(command.proto) $(DEPFLAGS) -c -o $@ $<
$(BUILD)/obj/server/%.c.o: server/%.c $(MADE_WITH)/server
	@mkdir -p $(@D)
	$(call say,CC,$<)
	$(Q)$(command.server) $(DEPFLAGS) -c -o $@ $<
$(BUILD)/obj/tests/%.c.o: tests/%.c $(MADE_WITH)/tests
	@mkdir -p $(@D)
	$(call say,CC,$<)
	$(Q)$(command.tests) $(DEPFLAGS) -c -o $@ $<

# The files that the binary holds, as they are and as gzip has them. The page's script is one, of
# these parts in this order. The page goes without indentation and comments.
PAGE_SCRIPT := $(patsubst %,server/page/%.js,base picture figure try race network plot watch start)
FILES := $(addprefix $(BUILD)/files/,page.html page.css page.js docs.css docs.js icon.svg openapi.yaml)
$(BUILD)/obj/server/routes/service/files.c.o: server/routes/service/files.c $(FILES) $(FILES:=.gz) $(MADE_WITH)/files
	@mkdir -p $(@D)
	$(call say,CC,$<)
	$(Q)$(command.files) $(DEPFLAGS) -c -o $@ $<
SHORTER := s:^ *::; s:  *// .*::; \:^//:d; \:^/\*.*\*/$$:d; /^$$/d
$(addprefix $(BUILD)/files/,page.html page.js docs.js): shorter = $(SHORTER)
$(addprefix $(BUILD)/files/,page.css docs.css): shorter = $(SHORTER); s: *\([:;{},]\) :\1:g
$(BUILD)/files/openapi.yaml: proto/openapi.yaml
$(BUILD)/files/page.js: $(PAGE_SCRIPT)
$(BUILD)/files/docs.js: server/page/yaml.js server/page/docs.js
$(addprefix $(BUILD)/files/,page.html page.css docs.css icon.svg): $(BUILD)/files/%: server/page/%
$(FILES): Makefile
	@mkdir -p $(@D)
	$(Q)sed '$(shorter)' $(filter-out Makefile,$^) >$@
$(BUILD)/files/%.gz: $(BUILD)/files/%
	$(Q)gzip -9nc $< >$@

# ---- benchmarks: two programs; each sub-command prints a table and writes JSON into $(BUILD)/bench
# oneDNN beside the CPU, where its headers are (Debian: libdnnl-dev): a benchmark's dependency only.
ONEDNN = $(call once,ONEDNN,$(shell printf '\043include <dnnl.h>\n' | $(CC) -E -x c - >/dev/null 2>&1 && echo 1))
# OpenVINO beside it too, where `make openvino` has put it.
OPENVINO_VENV := $(BUILD)/openvino-venv
OPENVINO = $(call once,OPENVINO,$(wildcard $(OPENVINO_VENV)/lib/python3*/site-packages/openvino))
OPENVINO_LIB = $(call once,OPENVINO_LIB,$(abspath $(wildcard $(OPENVINO)/libs/libopenvino_c.so.*)))
BENCH_SRC := $(addprefix tests/bench/,report.c options.c model.c)
# Of each pair one, by what there is.
BENCH_CONV_SRC = $(filter-out %/no_cuda.c %/no_onednn.c %/peer_onednn.c %/no_openvino.c %/peer_openvino.c, \
                   $(call tree,tests/bench/conv,c)) \
                 $(BENCH_SRC) $(addprefix tests/bench/conv/,peers/$(if $(ONEDNN),peer_onednn,no_onednn).c \
                 peers/$(if $(OPENVINO_LIB),peer_openvino,no_openvino).c \
                 $(if $(filter 1,$(USE_CUDA)),device/cuda.cu,peers/no_cuda.c))
BENCH_HTTP_SRC := $(wildcard tests/bench/http/*.c) $(BENCH_SRC)

$(BUILD)/obj/tests/%.cu.o: tests/%.cu $(MADE_WITH)/tests-cu
	@mkdir -p $(@D)
	$(call say,NVCC,$<)
	$(Q)$(command.tests-cu) -MMD -MP -MF $(@:.o=.d) -c -o $@ $<
$(BUILD)/obj/tests/bench/conv/peers/peer_openvino.c.o: tests/bench/conv/peers/peer_openvino.c $(MADE_WITH)/tests
	@mkdir -p $(@D)
	$(call say,CC,$<)
	$(Q)$(command.tests) -isystem $(OPENVINO)/include $(DEPFLAGS) -c -o $@ $<
BENCH_CONV_LIBS = $(if $(ONEDNN),-ldnnl) \
                  $(if $(OPENVINO_LIB),$(OPENVINO_LIB) -Wl$(comma)-rpath$(comma)$(dir $(OPENVINO_LIB)))
command.link-bench-conv = $(link) $(LIBS) $(BENCH_CONV_LIBS)
$(BUILD)/bench-conv: $$(call obj,$$(BENCH_CONV_SRC)) $(BUILD)/libxn_proto.a $(BUILD)/libxn_compute.a $(MADE_WITH)/link-bench-conv
	$(call say,LD,$@)
	$(Q)$(link) -o $@ $(parts) $(LIBS) $(BENCH_CONV_LIBS)
openvino: $(OPENVINO_VENV)/made-of ## OpenVINO and ONNX Runtime (PyPI, 350 MB) in a venv in BUILD: from then on peers in bench and bench-network
$(OPENVINO_VENV)/made-of: tests/bench/conv/peers/requirements.txt
	$(PYTHON) -m venv $(OPENVINO_VENV)
	$(OPENVINO_VENV)/bin/pip --quiet --disable-pip-version-check install -r $<
	cp $< $@
$(BUILD)/bench-http: $(call obj,$(BENCH_HTTP_SRC)) $(BUILD)/libxn_proto.a $(BUILD)/libxn_compute.a $(MADE_WITH)/link
	$(call say,LD,$@)
	$(Q)$(link) -o $@ $(parts) $(LIBS)

# A sub-command, the JSON's name, options.
bench_conv = $(BUILD)/bench-conv $(1) --json $(BUILD)/bench/bench_$(2).json $(3) $(BENCH_FLAGS)
# cuDNN's figures, where this Python has PyTorch.
PYTHON ?= python3
PEER = $(call once,PEER,$(shell $(PYTHON) -c 'import torch' 2>/dev/null && \
         echo $(PYTHON) tests/bench/conv/peers/peer_torch_conv.py))

# OpenCV's filter2D, where this Python has cv2, or one in $(BUILD)/opencv, a virtual environment.
OPENCV = $(call once,OPENCV,$(shell for python in $(BUILD)/opencv/bin/python $(PYTHON); do \
           $$python -c 'import cv2' 2>/dev/null && echo $$python tests/bench/conv/peers/peer_opencv.py && break; done))

bench: deps ## convolution: the CPU beside OpenVINO, oneDNN and OpenCV, then the GPU beside cuDNN; BENCH_FLAGS: bench-conv help
	@$(MAKE) $(BY_ITSELF) $(BUILD)/bench-conv
	$(call bench_conv,time,layers,--shapes layers $(if $(PEER),--peer "$(PEER)") $(if $(OPENCV),--opencv "$(OPENCV)"))
bench-gpu: deps ## the GPU's part of bench
	@$(MAKE) $(BY_ITSELF) $(BUILD)/bench-conv
	$(call bench_conv,time,gpu,--shapes layers --backend cuda $(if $(PEER),--peer "$(PEER)"))
bench-cpu-real: deps ## modes float and bwn on the CPU, beside the machine's peak of multiplications
	@$(MAKE) $(BY_ITSELF) $(BUILD)/bench-conv
	$(call bench_conv,time,cpu_real,--shapes real --backend cpu)
bench-gpu-real: deps ## modes float and bwn on the GPU, and cuDNN where PyTorch is
	@$(MAKE) $(BY_ITSELF) $(BUILD)/bench-conv
	$(call bench_conv,time,gpu_real,--shapes real --backend cuda)
	-$(PEER)
bench-gpu-shapes: deps ## other shapes on the GPU, every path, each against its own floor
	@$(MAKE) $(BY_ITSELF) $(BUILD)/bench-conv
	$(call bench_conv,paths,gpu_shapes,--shapes networks --backend cuda)
bench-gpu-runs: deps ## whole runs on one GPU and on all, from host memory: small ones without copies beside with
	@$(MAKE) $(BY_ITSELF) $(BUILD)/bench-conv
	$(call bench_conv,time,gpu_runs,--of runs --shapes runs)
# PYTHON: one that has PyTorch, for the peer.
NETWORK_PEER = $(if $(PEER),$(firstword $(PEER)) tests/bench/conv/peers/peer_torch_network.py)
# The INT8 peers' Python: the one of `make openvino`, else this one where it has ONNX Runtime or OpenVINO.
INT8_PYTHON = $(call once,INT8_PYTHON,$(shell for python in $(OPENVINO_VENV)/bin/python $(PYTHON); do \
                $$python -c 'import onnx, onnxruntime' 2>/dev/null && echo $$python && break; done))
# Model folders with random parameters, in both precisions.
NETWORKS = $(BUILD)/networks/made
$(NETWORKS): tests/bench/networks.py
	$(PYTHON) $< $(@D)/fp32
	$(PYTHON) $< $(@D)/fp16 fp16
	@touch $@
bench-network: deps ## whole networks, beside ResNet-18: INT8 in OpenVINO, ONNX Runtime and PyTorch, where they are (make openvino, PYTHON, THREADS)
	@$(MAKE) $(BY_ITSELF) $(BUILD)/bench-conv $(NETWORKS)
	$(call bench_conv,time,network,--of network --threads $(or $(THREADS),2) \
	  $(patsubst %,--model $(BUILD)/networks/fp32/%,birealnet18 reactnet-a quicknet binarydensenet28))
	-$(if $(INT8_PYTHON),$(INT8_PYTHON) tests/bench/conv/peers/peer_int8_network.py $(BUILD)/bench-conv $(BUILD)/networks/fp32/birealnet18 $(or $(THREADS),2) $(BUILD)/int8)
	-$(if $(PEER),$(NETWORK_PEER) cpu $(or $(THREADS),2))
	-$(if $(PEER),$(NETWORK_PEER) cuda)
bench-paper: deps ## the paper's three tables beside its published figures
	@$(MAKE) $(BY_ITSELF) $(BUILD)/bench-conv
	$(call bench_conv,time,paper,--of stage --shapes paper)

# DAEMON_FLAGS: the daemon's.
bench_http = $(BUILD)/bench-http $(1) --json $(BUILD)/bench/bench_$(2).json --xnord $(BUILD)/xnord
# With Pillow where there is none: a virtual environment in BUILD.
$(BUILD)/bench-pictures: $(call obj,tests/bench/pictures/main.c) $(BUILD)/libxn_proto.a $(BUILD)/libxn_compute.a $(MADE_WITH)/link
	$(call say,LD,$@)
	$(Q)$(link) -o $@ $(parts) $(LIBS)
$(BUILD)/pictures-venv: tests/pictures/requirements.txt
	@rm -rf $@
	python3 -m venv $@
	$@/bin/pip --quiet install -r $<
	@touch $@
bench-pictures: deps ## pictures a second: decode, resize and crop a JPEG, beside libjpeg-turbo alone and Pillow
	@$(MAKE) $(BY_ITSELF) $(BUILD)/bench-pictures $(BUILD)/pictures-venv
	@mkdir -p $(BUILD)/bench/pictures
	$(BUILD)/bench-pictures $(BUILD)/bench/pictures $(BENCH_FLAGS)
	$(BUILD)/pictures-venv/bin/python tests/bench/pictures/pillow.py $(BUILD)/bench/pictures $(BENCH_FLAGS)
$(BUILD)/search-venv/made-of: tests/bench/search-requirements.txt
	python3 -m venv $(@D)
	$(@D)/bin/pip --quiet --disable-pip-version-check install -r $<
	cp $< $@
bench-search: deps ## exact Hamming search beside FAISS (PyPI, 130 MB, in a venv in BUILD); THREADS, BENCH_FLAGS="--codes 10000000"
	@$(MAKE) $(BY_ITSELF) $(BUILD)/xnord $(BUILD)/search-venv/made-of
	$(BUILD)/search-venv/bin/python tests/bench/search.py $(BUILD)/xnord $(BUILD)/search --threads $(or $(THREADS),2) \
	  --json $(BUILD)/bench/bench_search.json $(BENCH_FLAGS)
bench-json: deps ## reading JSON tensors beside Jansson
	@$(MAKE) $(BY_ITSELF) $(BUILD)/bench-http
	$(call bench_http,json,json) $(BENCH_FLAGS)
bench-http: ## wrk against xnord, the echo ceiling and (if installed) the PyTorch peer; floats, bits, shared memory
	@deploy/install-deps.sh --with-bench
	@$(MAKE) $(BY_ITSELF) $(BUILD)/xnord $(BUILD)/bench-http
	$(call bench_http,wrk,http) $(BENCH_FLAGS) -- $(DAEMON_FLAGS)
	$(call bench_http,compare,http_ways) $(BENCH_FLAGS) -- $(DAEMON_FLAGS)
bench-http-network: deps ## a whole network over HTTP, Bi-Real-18 in fp16, in bodies and in shared memory, beside the echo ceiling
	@$(MAKE) $(BY_ITSELF) $(BUILD)/xnord $(BUILD)/bench-http $(NETWORKS)
	$(call bench_http,compare,http_network) --workloads network --model $(BUILD)/networks/fp16/birealnet18 $(BENCH_FLAGS) -- $(DAEMON_FLAGS)
bench-http-cache: deps ## the cache of answers on and off, by how many requests came before
	@$(MAKE) $(BY_ITSELF) $(BUILD)/xnord $(BUILD)/bench-http $(NETWORKS)
	$(call bench_http,compare,http_cache) --model $(BUILD)/networks/fp32/birealnet18 --workloads "cache-4k cache-layer cache-network" $(BENCH_FLAGS) -- $(DAEMON_FLAGS)
bench-http-first: deps ## the first request after ready beside the steady ones, with --warmup on and off
	@$(MAKE) $(BY_ITSELF) $(BUILD)/xnord $(NETWORKS)
	tests/bench/http/first_request.py $(BUILD)/xnord $(BUILD)/networks/fp32/birealnet18 -- $(DAEMON_FLAGS)
bench-http-devices: deps ## large layers over HTTP on one GPU and on more (GPUS="1 2"), beside the echo ceiling
	@$(MAKE) $(BY_ITSELF) $(BUILD)/xnord $(BUILD)/bench-http
	$(call bench_http,compare,http_devices) --workloads devices --gpus "$(or $(GPUS),1)" $(BENCH_FLAGS) -- $(DAEMON_FLAGS)
bench-overload: deps ## goodput, latency and memory at 1x to 10x of capacity (open loop, a few minutes)
	@$(MAKE) $(BY_ITSELF) $(BUILD)/xnord $(BUILD)/bench-http
	$(call bench_http,overload,overload) $(BENCH_FLAGS) -- $(DAEMON_FLAGS)
bench-probe: deps ## how long a health probe waits beside JSON bodies of 112 MB (PROBE_CPUS, CLIENT_CPUS)
	@$(MAKE) $(BY_ITSELF) $(BUILD)/xnord $(BUILD)/bench-http
	$(call bench_http,probe,probe) --daemon-cpus $(or $(PROBE_CPUS),0$(comma)1) \
	  $(if $(CLIENT_CPUS),--cpus $(CLIENT_CPUS)) $(BENCH_FLAGS) -- $(DAEMON_FLAGS)

# ---- demo, checks, installation ----
PREFIX ?= /usr/local

$(BUILD)/xnord-demo-pnm: deploy/demo/pnm.c $(MADE_WITH)/tool
	@mkdir -p $(@D)
	$(call say,CC,$<)
	$(Q)$(command.tool) -o $@ $< -lm -lz

demo_settings = BUILD=$(BUILD) IMAGE="$(IMAGE)" DIGIT="$(DIGIT)"
demo: ## a picture through an edge kernel, a digit through a network: [IMAGE=picture.pgm|.ppm] [DIGIT=..]
	@$(demo_settings) deploy/demo/demo.sh check
	@$(MAKE) --no-print-directory deps
	@$(MAKE) $(BY_ITSELF) $(BUILD)/xnord $(BUILD)/xnord-demo-pnm
	@$(demo_settings) deploy/demo/demo.sh
PORT ?= 8080
run: deps ## the daemon on PORT=8080 with the demo's network, and three lines to try it with; Ctrl-C ends it
	@$(MAKE) $(BY_ITSELF) $(BUILD)/xnord
	@deploy/demo/run.sh $(BUILD)/xnord $(PORT)

format: ## clang-format on every source file, in place
	git ls-files --cached --others --exclude-standard '*.c' '*.h' '*.cu' '*.cuh' | xargs clang-format -i
lint: ## format, layers, shellcheck, cppcheck, clang-tidy
	@deploy/install-deps.sh --with-checks
	@.ci/lint

# ---- the manual page and completion, from the table that --help is printed from ----
$(BUILD)/xnord-manual: deploy/manual/manual.c $(call obj,$(addprefix server/config/,config_settings.c version_policy.c otlp_target.c) compute/core/status.c) $(MADE_WITH)/manual
	$(call say,CC,$<)
	$(Q)$(command.manual) -o $@ $< $(parts)
$(BUILD)/xnord.1: $(BUILD)/xnord-manual
	$(Q)$< man >$@
$(BUILD)/xnord.bash: $(BUILD)/xnord-manual
	$(Q)$< bash >$@
manual: $(BUILD)/xnord.1 $(BUILD)/xnord.bash ## the manual page and bash's completion, in BUILD

# ---- installation and packages ----
CONVERTER := $(wildcard $(addprefix deploy/convert/xnord_convert/,*.py families/*.py))
DIGITS    := $(addprefix deploy/demo/digits/,config.json labels.txt model.safetensors)
define newline


endef
# Below PREFIX: what it is made of, its mode, where it goes.
define INSTALLED
$(BUILD)/xnord                755 bin/xnord
$(BUILD)/xnord.1              644 share/man/man1/xnord.1
$(BUILD)/xnord.bash           644 share/bash-completion/completions/xnord
$(BUILD)/xnord.service        644 lib/systemd/system/xnord.service
deploy/xnord.sysusers         644 lib/sysusers.d/xnord.conf
deploy/xnord.conf.example     644 share/doc/xnord/xnord.conf.example
LICENSE                       644 share/doc/xnord/LICENSE
deploy/convert/xnord-convert   755 bin/xnord-convert
deploy/convert/xnord-convert.1 644 share/man/man1/xnord-convert.1
$(foreach file,$(CONVERTER),$(file) 644 share/xnord/$(file:deploy/convert/%=%)$(newline))\
$(foreach file,$(DIGITS),$(file) 644 share/xnord/$(file:deploy/demo/%=%)$(newline))
endef
export INSTALLED

# Written each time: what it is made by is only PREFIX.
$(BUILD)/xnord.service: FORCE
	@mkdir -p $(@D)
	@sed 's|/usr/local/bin/xnord|$(PREFIX)/bin/xnord|' deploy/xnord.service >$@

install: build manual $(BUILD)/xnord.service ## to PREFIX=/usr/local: the daemon, its unit, manual page, completion, example configuration, the converter, a network
	$(Q)echo "$$INSTALLED" | grep . | while read -r file mode to; do \
	    install -D -m $$mode $$file "$(DESTDIR)$(PREFIX)/$$to" || exit; \
	    echo "  $(DESTDIR)$(PREFIX)/$$to"; \
	done
	@test -n "$(DESTDIR)" || printf '%s\n' '' "Installed. To try it:  $(PREFIX)/bin/xnord --model digits=$(PREFIX)/share/xnord/digits" \
	    'As a service:' \
	    '  systemd-sysusers $(PREFIX)/lib/sysusers.d/xnord.conf && mkdir -p /etc/xnord' \
	    '  cp $(PREFIX)/share/doc/xnord/xnord.conf.example /etc/xnord/xnord.conf    # and edit it' \
	    '  systemctl daemon-reload && systemctl enable --now xnord' \
	    'man xnord tells of its settings; make uninstall takes it away again.'
uninstall: ## takes away what install put there; /etc/xnord and /var/lib/xnord stay
	$(Q)echo "$$INSTALLED" | grep . | while read -r file mode to; do \
	    rm -f "$(DESTDIR)$(PREFIX)/$$to" || exit; \
	done
	@rm -rf "$(DESTDIR)$(PREFIX)/share/xnord/xnord_convert" # and what Python has compiled there
	@cd "$(DESTDIR)$(PREFIX)/share" && rmdir xnord/digits xnord doc/xnord 2>/dev/null || true
	@test -n "$(DESTDIR)" || echo 'Gone. If it was a service: systemctl disable --now xnord; its settings are still in /etc/xnord.'

dist: ## BUILD/xnord-VERSION.tar.xz of what is committed
	@deploy/package.sh dist $(BUILD)
deb: ## BUILD/deb/xnord_VERSION_ARCH.deb, by debhelper, checked by lintian
	@deploy/install-deps.sh --with-deb
	@deploy/package.sh deb $(BUILD)/deb

# ---- sanitizers: their own folders, no CUDA (compute-sanitizer does that side) ----
asan: ## the tests under AddressSanitizer, LeakSanitizer and UndefinedBehaviorSanitizer
	$(MAKE) $(BY_ITSELF) check BUILD=build-asan CUDA=0 OPT=-O1 SIMULATE_SEEDS=500 \
	  SANITIZE="-fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer"
# What it looks for is between threads, so of the case table, which runs on one mostly, it needs few
# cases, and of networks only the known ones. Without a pause at the end of each test's process.
TSAN_EVERY  ?= 61
TSAN_RANDOM ?= 20
TSAN_SKIP   ?= networks_deep networks_dense networks_digits networks_precision networks_random networks_stem
tsan: ## the tests under ThreadSanitizer (without OpenMP: libgomp is not instrumented)
	XNORD_TEST_EVERY=$(TSAN_EVERY) XNORD_TEST_RANDOM=$(TSAN_RANDOM) XNORD_TEST_SKIP="$(TSAN_SKIP)" \
	  TSAN_OPTIONS="atexit_sleep_ms=0 $$TSAN_OPTIONS" \
	  $(MAKE) $(BY_ITSELF) check BUILD=build-tsan CUDA=0 OPENMP=0 OPT=-O1 SANITIZE="-fsanitize=thread"

test-arm64: ## the mathematics on arm64, cross-compiled, under qemu-user (XNORD_TEST_EVERY=1: all)
	@deploy/install-deps.sh --with-arm64
	+tests/arm64.sh $(BUILD)/arm64

test-openapi: $(BUILD)/xnord ## openapi.yaml against the daemon, by schemathesis (PyPI) in a venv in BUILD
	tests/openapi/run.sh $(BUILD)

test-page: ## the page at / in a headless Chromium; pictures of it in BUILD/page
	@deploy/install-deps.sh --with-page
	@$(MAKE) $(BY_ITSELF) $(BUILD)/xnord
	tests/page/run.sh $(BUILD)

test-clients: $(BUILD)/xnord ## tritonclient, perf_analyzer and KServe's client (PyPI, in a venv in BUILD) against the daemon
	tests/clients/run.sh $(BUILD)

test-package: $(BUILD)/xnord manual test-binary ## one version everywhere; manual page, completion, install, deb, dist
	@deploy/install-deps.sh --with-deb
	+tests/package.sh $(BUILD)

test-readme: $(BUILD)/xnord ## what README.md shows, block after block, beside make run; a venv in BUILD
	tests/readme.sh $(BUILD)

test-image: ## the CPU image, by buildah on a base that debootstrap makes: built, run, its health check; needs root
	@deploy/install-deps.sh --with-image
	tests/image.sh $(BUILD)/image

test-monitoring: $(BUILD)/xnord ## dashboard and alerts, by Prometheus (Debian's) that collects from daemons under load
	tests/deploy/run.sh $(BUILD) monitoring_test

test-manifests: $(BUILD)/xnord ## Kubernetes and KServe manifests: kustomize, schemas (PyPI), and what they ask of the daemon
	tests/deploy/run.sh $(BUILD) manifests_test

test-cluster: $(BUILD)/xnord $(BUILD)/bench-http ## HAProxy (Debian's) before daemons that are killed, drained, added, replaced under load
	tests/deploy/run.sh $(BUILD) cluster_test

bench-cluster: $(BUILD)/xnord $(BUILD)/bench-http ## 1, 2 and 4 daemons behind HAProxy, each held to a share of a core (root)
	DEPLOY_PROGRAM=bench_cluster.py tests/deploy/run.sh $(BUILD) $(BENCH_FLAGS)

NETWORKS ?=
test-networks: $(BUILD)/xnord ## networks of PyTorch, Keras, MXNet and ONNX, converted, served, compared; a venv in BUILD
	tests/networks/run.sh $(BUILD) $(if $(NETWORKS),--only "$(NETWORKS)")

test-mhd1: ## the HTTP suites with libmicrohttpd 1.0, where the system has an older one
	@deploy/install-deps.sh --with-mhd1
	+tests/mhd1.sh $(BUILD)/mhd1

# ---- fuzzing: every parser and writer of tests/fuzz, coverage-guided where clang has libFuzzer ----
FUZZ_SECONDS ?= 10
FUZZ_CC      ?= clang
FUZZ_TARGETS ?= $(notdir $(wildcard tests/fuzz/corpus/*))
FUZZ_PROGRAM = $(shell echo 'int LLVMFuzzerTestOneInput(void); int LLVMFuzzerTestOneInput(void) {return 0;}' | \
                 $(FUZZ_CC) -fsanitize=fuzzer,address,undefined -x c -o /dev/null - >/dev/null 2>&1 && echo fuzz || echo replay)
FUZZ_FLAGS_fuzz = CC=$(FUZZ_CC) SANITIZE="-fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all"
FUZZ_FLAGS_replay = SANITIZE="-fsanitize=address,undefined -fno-sanitize-recover=all"
FUZZ_OBJ := $(call obj,$(filter-out %_test.c,$(wildcard tests/fuzz/*.c)) $(PROTO_SRC) \
            $(addprefix compute/core/,mem.c status.c tensor.c conv.c lower/graph.c lower/op_table.c) \
            $(filter $(addprefix %/,config.c config_settings.c version_policy.c otlp_target.c file.c auth.c secrets.c log.c log_line.c),$(SERVER_SRC)))
FUZZ_LIBS = $(call once,FUZZ_LIBS,$(shell $(PKG_CONFIG) --libs jansson gnutls libjpeg libpng))

fuzz: ## every parser fuzzed for FUZZ_SECONDS (10) each, under ASan and UBSan; FUZZ_TARGETS: some of them
	+@program=$(FUZZ_PROGRAM); build=build-fuzz/$$program; \
	if [ $$program = fuzz ]; then set -- $(FUZZ_FLAGS_fuzz); else set -- $(FUZZ_FLAGS_replay); fi; \
	$(MAKE) $(BY_ITSELF) $(foreach t,$(FUZZ_TARGETS),$$build/$$program-$(t)) BUILD=$$build \
	  CUDA=0 OPENMP=0 OPT=-O1 WERROR=0 "$$@" && \
	FUZZ_ROUNDS=$(FUZZ_ROUNDS) FUZZ_SEED=$(FUZZ_SEED) \
	  tests/fuzz/run.sh $$build $$program $(FUZZ_SECONDS) $(FUZZ_TARGETS)

$(BUILD)/fuzz-%: tests/fuzz/driver/libfuzzer.c $(FUZZ_OBJ)
	$(call say,LD,$@)
	$(Q)$(CC) $(XN_CFLAGS) $(TEST_INC) -DXF_TARGET=xf_$* -fsanitize=fuzzer $(XN_LDFLAGS) -o $@ $^ $(FUZZ_LIBS) -lm
$(BUILD)/replay-%: tests/fuzz/driver/replay.c $(FUZZ_OBJ)
	$(call say,LD,$@)
	$(Q)$(CC) $(XN_CFLAGS) $(TEST_INC) $(XN_LDFLAGS) -o $@ $^ $(FUZZ_LIBS) -lm

# ---- long runs ----
# The soak by itself runs in the runner's process: from one to another libcheck can tell of 35 minutes.
STRESS ?=
stress: deps ## hang-ups, slow peers, drains, a soak: minutes (SOAK_SECONDS=3600; STRESS=stress_soak: that one)
	@$(MAKE) $(BY_ITSELF) $(BUILD)/xnord $(BUILD)/xnord-stress
	$(if $(filter stress_soak,$(STRESS)),CK_FORK=no )XNORD_BIN=$(abspath $(BUILD)/xnord) $(BUILD)/xnord-stress $(STRESS)

clean:
	rm -rf build build-asan build-tsan build-fuzz

help: ## this list
	@awk -F':.*## ' '/^[a-z0-9-]+:.*## /{printf "  make %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

-include $(shell find $(BUILD)/obj -name '*.d' 2>/dev/null)
