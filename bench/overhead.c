/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a stand-in costs on top of the driver: a launch, an allocation with its free, a start. The driver does nothing, and each figure is the difference to
 * calling it directly, measured in turns in the same process.
 *
 *   bench-overhead --host SHIM_HOST --shim DIR --provider LIBRARY [--json] [--peer 'NAME=[ENV=VALUE ...] LIBRARY']...
 *
 * --peer runs the same loops under another preload library. bench-overhead --measure PROVIDER LIVE is one measurement, for use by itself.
 */
#include "api/cuda_abi.h"
#include "base/clock.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define TURNS	    25
#define LAUNCHES    200000
#define PAIRS	    10000
#define MAX_PEERS   8
#define LIMIT_TEXT  "1099511627776" /* a limit that is checked and never met */
#define STARTS_TEXT "300"

struct driver {
	CUresult (*init)(unsigned);
	CUresult (*alloc)(CUdeviceptr *, size_t);
	CUresult (*release)(CUdeviceptr);
	CUresult (*launch)(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
			   unsigned, CUstream, void **, void **);
};

struct result {
	double launch, bare_launch, pair, bare_pair; /* ns */
};

static void need(bool ok, const char *what)
{
	if (ok)
		return;
	(void)fprintf(stderr, "bench-overhead: %s\n", what);
	exit(1);
}

static struct driver find(void *lib)
{
	struct driver d;

	*(void **)&d.init = dlsym(lib, "cuInit");
	*(void **)&d.alloc = dlsym(lib, "cuMemAlloc_v2");
	*(void **)&d.release = dlsym(lib, "cuMemFree_v2");
	*(void **)&d.launch = dlsym(lib, "cuLaunchKernel");
	need(d.init && d.alloc && d.release && d.launch, "the driver lacks names");
	return d;
}

static double time_launches(const struct driver *d)
{
	uint64_t start = aq_now_ns();

	for (int i = 0; i < LAUNCHES; i++)
		(void)d->launch(NULL, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL);
	return (double)(aq_now_ns() - start) / LAUNCHES;
}

static double time_pairs(const struct driver *d)
{
	uint64_t start = aq_now_ns();

	for (int i = 0; i < PAIRS; i++) {
		CUdeviceptr p = 0;

		need(d->alloc(&p, 4096) == CUDA_SUCCESS && d->release(p) == CUDA_SUCCESS,
		     "an allocation failed");
	}
	return (double)(aq_now_ns() - start) / PAIRS;
}

/* The quickest turn is the one that nothing else has disturbed. */
static double best(const double *v)
{
	double least = v[0];

	for (int i = 1; i < TURNS; i++)
		least = v[i] < least ? v[i] : least;
	return least;
}

/* In a process of its own: the preloaded library against the driver itself. */
static int measure(const char *provider, unsigned long live)
{
	void *lib = dlopen(provider, RTLD_NOW | RTLD_LOCAL);
	void *front = dlsym(RTLD_DEFAULT, "cuInit") ? RTLD_DEFAULT : lib;
	struct driver bare;
	struct driver under;
	double v[4][TURNS];

	need(lib != NULL, dlerror());
	bare = find(lib);
	under = find(front);
	need(under.init(0) == CUDA_SUCCESS && bare.init(0) == CUDA_SUCCESS, "cuInit failed");
	for (unsigned long i = 0; i < live; i++)
		need(under.alloc(&(CUdeviceptr){ 0 }, 4096) == CUDA_SUCCESS,
		     "an allocation failed");
	for (int turn = 0; turn < TURNS; turn++) {
		v[0][turn] = time_launches(&under);
		v[1][turn] = time_launches(&bare);
		v[2][turn] = time_pairs(&under);
		v[3][turn] = time_pairs(&bare);
	}
	(void)printf("%.3f %.3f %.3f %.3f\n", best(v[0]), best(v[1]), best(v[2]), best(v[3]));
	return 0;
}

/* Many processes at once, each up to a cuInit. Prints the milliseconds until the last one has ended. */
static int start_many(const char *self, const char *provider, int n)
{
	uint64_t start = aq_now_ns();
	int bad = 0;
	int status;

	for (int i = 0; i < n; i++) {
		pid_t pid = fork();

		if (pid == 0) {
			(void)execl(self, self, "--start", provider, (char *)NULL);
			_exit(1);
		}
	}
	while (wait(&status) > 0)
		bad += status != 0;
	need(bad == 0, "a start failed");
	(void)printf("%.3f 0 0 0\n", (double)(aq_now_ns() - start) / 1e6);
	return 0;
}

static int start_one(const char *provider)
{
	void *lib = dlopen(provider, RTLD_NOW | RTLD_LOCAL);
	CUresult (*init)(unsigned) = NULL;

	*(void **)&init = dlsym(dlsym(RTLD_DEFAULT, "cuInit") ? RTLD_DEFAULT : lib, "cuInit");
	return init && init(0) == CUDA_SUCCESS ? 0 : 1;
}

static struct {
	const char *self, *host, *shim, *provider;
	const char *peer[MAX_PEERS];
	unsigned n_peers;
	bool json;
} opt;

/* Run one measurement and read its line. */
static bool run(const char **argv, const char *preload, struct result *ret)
{
	FILE *f;
	int p[2];
	int status = 0;
	pid_t pid = -1;
	bool ok;

	need(pipe(p) == 0 && (pid = fork()) >= 0, "no process");
	if (pid == 0) {
		(void)dup2(p[1], STDOUT_FILENO);
		(void)close(p[0]);
		(void)close(p[1]);
		if (preload)
			(void)setenv("LD_PRELOAD", preload, 1);
		(void)execvp(argv[0], (char **)argv);
		_exit(127);
	}
	(void)close(p[1]);
	f = fdopen(p[0], "r");
	ok = f && fscanf(f, "%lf %lf %lf %lf", &ret->launch, &ret->bare_launch, &ret->pair,
			 &ret->bare_pair) == 4;
	if (f)
		(void)fclose(f);
	(void)waitpid(pid, &status, 0);
	return ok && status == 0;
}

static bool run_ours(const char *clients, const char *live, struct result *ret)
{
	const char *argv[] = { opt.host,  "--shim",    opt.shim,     "--provider", opt.provider,
			       "--limit", LIMIT_TEXT,  "--clients",  clients,	   "--",
			       opt.self,  "--measure", opt.provider, live,	   NULL };

	return run(argv, NULL, ret);
}

static bool first_line = true;

static void line(const char *what, const char *clients, const char *live, const struct result *r)
{
	double launch = r->launch - r->bare_launch, pair = r->pair - r->bare_pair;

	if (opt.json)
		(void)printf(
			"%s\n  {\"library\": \"%s\", \"clients\": %s, \"live\": %s, \"launch_ns\": %.2f, "
			"\"launch_bare_ns\": %.2f, \"pair_ns\": %.1f, \"pair_bare_ns\": %.1f}",
			first_line ? "" : ",", what, clients, live, launch, r->bare_launch, pair,
			r->bare_pair);
	else
		(void)printf("%-12s %8s %8s %12.2f %14.1f\n", what, clients, live, launch, pair);
	first_line = false;
	(void)fflush(stdout);
}

/* NAME=[ENV=VALUE ...] LIBRARY: the words between are the environment, the last one is what is preloaded. */
static void run_peer(const char *text, const char *live)
{
	char *copy = strdup(text);
	char *name = copy;
	char *rest = copy ? strchr(copy, '=') : NULL;
	const char *argv[16] = { "env" };
	char *word;
	struct result r;
	int n = 1;

	need(rest != NULL, "--peer NAME=[ENV=VALUE ...] LIBRARY");
	*rest++ = '\0';
	while ((word = strsep(&rest, " ")) && rest && n < 9)
		if (*word)
			argv[n++] = word;
	need(word && *word, "--peer without a library");
	argv[n++] = opt.self;
	argv[n++] = "--measure";
	argv[n++] = opt.provider;
	argv[n++] = live;
	if (run(argv, word, &r))
		line(name, "1", live, &r);
	else
		(void)fprintf(stderr, "bench-overhead: %s does not run\n", name);
	free(copy);
}

static void starts(void)
{
	const char *bare[] = { opt.self, "--starts", opt.provider, STARTS_TEXT, NULL };
	const char *ours[] = { opt.host,     "--shim",	  opt.shim, "--provider", opt.provider,
			       "--limit",    LIMIT_TEXT,  "--",	    opt.self,	  "--starts",
			       opt.provider, STARTS_TEXT, NULL };
	struct result b;
	struct result o;

	need(run(bare, NULL, &b) && run(ours, NULL, &o), "the starts failed");
	if (opt.json)
		(void)printf("],\n\"starts\": {\"processes\": " STARTS_TEXT
			     ", \"ms\": %.1f, \"bare_ms\": %.1f}}\n",
			     o.launch, b.launch);
	else
		(void)printf("\n" STARTS_TEXT
			     " processes at once: %.0f ms, bare %.0f ms, ratio %.2f\n",
			     o.launch, b.launch, o.launch / b.launch);
}

static void compare(void)
{
	static const char *const cases[][2] = {
		{ "1", "1" }, { "8", "1" }, { "300", "1" }, { "1", "1000" }, { "1", "100000" }
	};
	struct result r;

	if (opt.json)
		(void)printf("{\"measurements\": [");
	else
		(void)printf("%-12s %8s %8s %12s %14s\n", "added, ns", "clients", "live", "launch",
			     "alloc+free");
	for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		need(run_ours(cases[i][0], cases[i][1], &r), "a measurement failed");
		line("aliquot", cases[i][0], cases[i][1], &r);
	}
	for (unsigned i = 0; i < opt.n_peers; i++) {
		run_peer(opt.peer[i], "1");
		run_peer(opt.peer[i], "20000");
	}
	starts();
}

int main(int argc, char **argv)
{
	if (argc == 4 && strcmp(argv[1], "--measure") == 0)
		return measure(argv[2], strtoul(argv[3], NULL, 10));
	if (argc == 4 && strcmp(argv[1], "--starts") == 0)
		return start_many(argv[0], argv[2], (int)strtol(argv[3], NULL, 10));
	if (argc == 3 && strcmp(argv[1], "--start") == 0)
		return start_one(argv[2]);
	opt.self = argv[0];
	for (int i = 1; i < argc; i++) {
		if (strcmp(argv[i], "--json") == 0)
			opt.json = true;
		else if (i + 1 < argc && strcmp(argv[i], "--host") == 0)
			opt.host = argv[++i];
		else if (i + 1 < argc && strcmp(argv[i], "--shim") == 0)
			opt.shim = argv[++i];
		else if (i + 1 < argc && strcmp(argv[i], "--provider") == 0)
			opt.provider = argv[++i];
		else if (i + 1 < argc && strcmp(argv[i], "--peer") == 0 && opt.n_peers < MAX_PEERS)
			opt.peer[opt.n_peers++] = argv[++i];
		else
			need(false, "see the top of its source");
	}
	need(opt.host && opt.shim && opt.provider, "--host, --shim and --provider are needed");
	compare();
	return 0;
}
