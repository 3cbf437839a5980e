/* SPDX-License-Identifier: Apache-2.0 */
/* aliquotd: keeps the vgpus of a machine, or, with --private, of one user. */
#include "base/err.h"
#include "base/macro.h"
#include "base/size.h"
#include "daemon/daemon.h"
#include "proto/control.h"
#include "util/log.h"

#include <errno.h>
#include <getopt.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define EXIT_USAGE 2

static const char usage[] =
	"usage: aliquotd [option]…\n"
	"\n"
	"Keep virtual GPUs: their limits, who is attached to them, and what the driver says about it. `aliquot` talks to it.\n"
	"\n"
	"  --private             for one user: own directory, no group, cards taken when needed\n"
	"  --dir DIR             sockets and attach directories; default /run/aliquot\n"
	"  --state FILE          default /var/lib/aliquot/state.json; with --private DIR/state.json\n"
	"  --provider-cuda FILE  the driver's libcuda.so.1; default the system's\n"
	"  --provider-nvml FILE  the driver's libnvidia-ml.so.1; default the system's\n"
	"  --probe FILE          aliquot-probe; default the one beside this program\n"
	"  --lock-dir DIR        one lock file a GPU, so that one daemon manages it\n"
	"  --group NAME          its members may create vgpus; default aliquot, with --private nobody\n"
	"  --user-vgpus N        so many a member; default 8\n"
	"  --headroom SIZE       memory of each GPU that is not given out; default 512MiB, at most a sixteenth\n"
	"  --overcommit PERCENT  of a GPU's capacity that may be given out; default 100\n"
	"  --max-vgpus N         on one GPU, 1 to 64; default 20\n"
	"  --strangers WHAT      about processes that use a managed GPU and never attached: report (default), freeze, kill\n"
	"  --allow-software      give out software cards; --private implies it\n"
	"  --poll-ms N           how often the driver is asked, 50 to 10000; default 400\n"
	"  --ready-fd N          write a byte to descriptor N and close it when requests are served\n"
	"  --log-level L         error, warning, info or debug\n"
	"  --version             version and build\n"
	"  --help                this text\n";

struct options {
	struct aqd_config cfg;
	const char *dir, *state, *lock_dir, *probe, *cuda, *nvml;
	enum aq_log_level level;
};

static int parse_word(const char *what, const char *const *words, size_t n, struct aq_err *err)
{
	for (size_t i = 0; i < n; i++) {
		if (strcmp(words[i], optarg) == 0)
			return (int)i;
	}
	return aq_err_set(err, -EINVAL, "%s \"%s\" is not understood", what, optarg);
}

static int parse_range(const char *what, uint64_t least, uint64_t most, unsigned *ret,
		       struct aq_err *err)
{
	uint64_t n = 0;
	int rc = aq_uint_parse(optarg, what, most, &n, err);

	if (rc == 0 && n < least)
		return aq_err_set(err, -ERANGE, "%s is %llu, %llu at least", what,
				  (unsigned long long)n, (unsigned long long)least);
	*ret = (unsigned)n;
	return rc;
}

static int parse_number(struct options *o, int c, struct aq_err *err)
{
	unsigned fd;
	int rc;

	switch (c) {
	case 'u':
		return parse_range("--user-vgpus", 0, AQD_MAX_INSTANCES, &o->cfg.user_instances,
				   err);
	case 'o':
		return parse_range("--overcommit", 1, 10000, &o->cfg.overcommit_pct, err);
	case 'm':
		return parse_range("--max-vgpus", 1, 64, &o->cfg.max_instances, err);
	case 'P':
		return parse_range("--poll-ms", 50, 10000, &o->cfg.poll_ms, err);
	case 'H':
		o->cfg.headroom_given = true;
		/* "0" is a bare number: no headroom. */
		if (strcmp(optarg, "0") == 0)
			return 0;
		return aq_size_parse(optarg, &o->cfg.headroom_bytes, err);
	default:
		rc = parse_range("--ready-fd", 0, INT32_MAX, &fd, err);
		if (rc == 0)
			o->cfg.ready_fd = (int)fd;
		return rc;
	}
}

static int parse_words(struct options *o, int c, struct aq_err *err)
{
	static const char *const strangers[] = { "report", "freeze", "kill" };
	static const char *const levels[] = { "error", "warning", "info", "debug" };
	static const enum aq_log_level values[] = { AQ_LOG_ERROR, AQ_LOG_WARNING, AQ_LOG_INFO,
						    AQ_LOG_DEBUG };
	int rc;

	if (c == 'S') {
		rc = parse_word("--strangers", strangers, AQ_ARRAY_SIZE(strangers), err);
		if (rc >= 0)
			o->cfg.strangers = (enum aqd_action)rc;
	} else {
		rc = parse_word("--log-level", levels, AQ_ARRAY_SIZE(levels), err);
		if (rc >= 0)
			o->level = values[rc];
	}
	return rc;
}

static int parse_one(struct options *o, int c, struct aq_err *err)
{
	switch (c) {
	case 'p':
		o->cfg.private_mode = true;
		return 0;
	case 'd':
		o->dir = optarg;
		return 0;
	case 's':
		o->state = optarg;
		return 0;
	case 'c':
		o->cuda = optarg;
		return 0;
	case 'n':
		o->nvml = optarg;
		return 0;
	case 'b':
		o->probe = optarg;
		return 0;
	case 'l':
		o->lock_dir = optarg;
		return 0;
	case 'g':
		o->cfg.group = optarg;
		return 0;
	case 'a':
		o->cfg.allow_software = true;
		return 0;
	case 'S':
	case 'L':
		return parse_words(o, c, err);
	default:
		return parse_number(o, c, err);
	}
}

/* Returns 0, 1 (done, exit 0) or -EXIT_USAGE. */
static int parse(struct options *o, int argc, char **argv)
{
	static const struct option longs[] = {
		{ "private", no_argument, NULL, 'p' },
		{ "dir", required_argument, NULL, 'd' },
		{ "state", required_argument, NULL, 's' },
		{ "provider-cuda", required_argument, NULL, 'c' },
		{ "provider-nvml", required_argument, NULL, 'n' },
		{ "probe", required_argument, NULL, 'b' },
		{ "lock-dir", required_argument, NULL, 'l' },
		{ "group", required_argument, NULL, 'g' },
		{ "user-vgpus", required_argument, NULL, 'u' },
		{ "headroom", required_argument, NULL, 'H' },
		{ "overcommit", required_argument, NULL, 'o' },
		{ "max-vgpus", required_argument, NULL, 'm' },
		{ "strangers", required_argument, NULL, 'S' },
		{ "allow-software", no_argument, NULL, 'a' },
		{ "poll-ms", required_argument, NULL, 'P' },
		{ "ready-fd", required_argument, NULL, 'r' },
		{ "log-level", required_argument, NULL, 'L' },
		{ "version", no_argument, NULL, 'V' },
		{ "help", no_argument, NULL, 'h' },
		{ 0 },
	};
	struct aq_err err = { 0 };
	int c;

	while ((c = getopt_long(argc, argv, "", longs, NULL)) != -1) {
		if (c == '?')
			return -EXIT_USAGE;
		if (c == 'h') {
			(void)printf("%s", usage);
			return 1;
		}
		if (c == 'V') {
			(void)printf(
				"aliquotd %s (control protocol %u, attach protocol %u, pages %u, compiler %s)\n",
				AQ_VERSION, AQ_CONTROL_PROTOCOL, AQ_ATTACH_VERSION,
				AQ_PAGES_VERSION, __VERSION__);
			return 1;
		}
		if (parse_one(o, c, &err) < 0) {
			(void)fprintf(stderr, "aliquotd: %s\n", err.msg);
			return -EXIT_USAGE;
		}
	}
	if (optind < argc) {
		(void)fprintf(stderr, "aliquotd: argument \"%s\" is not understood\n",
			      argv[optind]);
		return -EXIT_USAGE;
	}
	return 0;
}

static int put(char *buf, size_t size, const char *what, const char *value, struct aq_err *err)
{
	if (snprintf(buf, size, "%s", value) >= (int)size)
		return aq_err_set(err, -ENAMETOOLONG, "%s \"%.100s…\" is too long", what, value);
	return 0;
}

/* Where distributions and container runtimes put the driver's libraries. */
static void find_library(const char *name, char *buf, size_t size)
{
	static const char *const folders[] = {
#if defined(__x86_64__)
		"/usr/lib/x86_64-linux-gnu",
#elif defined(__aarch64__)
		"/usr/lib/aarch64-linux-gnu",
#endif
		"/usr/lib64",
		"/usr/lib",
		"/usr/local/nvidia/lib64",
		"/usr/local/cuda/compat",
		"/run/opengl-driver/lib",
		"/usr/lib/wsl/lib",
	};

	for (size_t i = 0; i < AQ_ARRAY_SIZE(folders); i++) {
		(void)snprintf(buf, size, "%s/%s", folders[i], name);
		if (access(buf, R_OK) == 0)
			return;
	}
	/* The probe's message will name it. */
	(void)snprintf(buf, size, "/usr/lib64/%s", name);
}

static int find_probe(char *buf, size_t size, struct aq_err *err)
{
	char self[PATH_MAX / 4];
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
	char *slash;

	if (n < 0 || (size_t)n >= sizeof(self) - 1)
		return aq_err_set(err, -ENOENT, "cannot find out where this program lies");
	self[n] = '\0';
	slash = strrchr(self, '/');
	if (slash)
		*slash = '\0';
	(void)snprintf(buf, size, "%s/aliquot-probe", self);
	if (access(buf, X_OK) == 0)
		return 0;
	(void)snprintf(buf, size, "%s", AQ_PROBE_PATH);
	if (access(buf, X_OK) == 0)
		return 0;
	return aq_err_set(err, -ENOENT, "aliquot-probe is neither in %s nor at %s", self,
			  AQ_PROBE_PATH);
}

/* A user's own daemon keeps its locks where the user may write. */
static int default_lock_dir(const struct options *o, char *buf, size_t size)
{
	const char *runtime = getenv("XDG_RUNTIME_DIR");

	if (!o->cfg.private_mode || geteuid() == 0)
		return snprintf(buf, size, AQ_CONTROL_SYSTEM_DIR "/cards");
	if (runtime && runtime[0] == '/')
		return snprintf(buf, size, "%s/aliquot-cards", runtime);
	return snprintf(buf, size, "/tmp/aliquot-cards-%u", geteuid());
}

static int complete_paths(struct options *o, struct aq_err *err)
{
	struct aqd_config *cfg = &o->cfg;
	int rc = put(cfg->dir, sizeof(cfg->dir), "--dir", o->dir ? o->dir : AQ_CONTROL_SYSTEM_DIR,
		     err);

	if (rc == 0 && cfg->private_mode && !o->dir)
		rc = aq_err_set(err, -EINVAL, "--private needs --dir");
	if (rc == 0 && cfg->dir[0] != '/')
		rc = aq_err_set(err, -EINVAL, "--dir \"%s\" does not begin with /", cfg->dir);
	if (rc < 0)
		return rc;
	if (o->state)
		rc = put(cfg->state, sizeof(cfg->state), "--state", o->state, err);
	else if (cfg->private_mode)
		(void)snprintf(cfg->state, sizeof(cfg->state), "%s/state.json", cfg->dir);
	else
		rc = put(cfg->state, sizeof(cfg->state), "--state", "/var/lib/aliquot/state.json",
			 err);
	if (rc < 0)
		return rc;
	if (o->lock_dir)
		rc = put(cfg->lock_dir, sizeof(cfg->lock_dir), "--lock-dir", o->lock_dir, err);
	else
		(void)default_lock_dir(o, cfg->lock_dir, sizeof(cfg->lock_dir));
	cfg->system_lock_dir = AQ_CONTROL_SYSTEM_DIR "/cards";
	return rc;
}

static int complete(struct options *o, struct aq_err *err)
{
	struct aqd_config *cfg = &o->cfg;
	int rc = complete_paths(o, err);

	if (rc == 0 && o->cuda)
		rc = put(cfg->cuda_provider, sizeof(cfg->cuda_provider), "--provider-cuda", o->cuda,
			 err);
	else
		find_library("libcuda.so.1", cfg->cuda_provider, sizeof(cfg->cuda_provider));
	if (rc == 0 && o->nvml)
		rc = put(cfg->nvml_provider, sizeof(cfg->nvml_provider), "--provider-nvml", o->nvml,
			 err);
	else
		find_library("libnvidia-ml.so.1", cfg->nvml_provider, sizeof(cfg->nvml_provider));
	if (rc == 0 && o->probe)
		rc = put(cfg->probe, sizeof(cfg->probe), "--probe", o->probe, err);
	else if (rc == 0)
		rc = find_probe(cfg->probe, sizeof(cfg->probe), err);
	if (!cfg->private_mode && !cfg->group)
		cfg->group = "aliquot";
	return rc;
}

/* Each attached program is two descriptors. */
static void raise_fd_limit(void)
{
	struct rlimit rl;

	if (getrlimit(RLIMIT_NOFILE, &rl) < 0)
		return;
	rl.rlim_cur = rl.rlim_max;
	(void)setrlimit(RLIMIT_NOFILE, &rl);
}

int main(int argc, char **argv)
{
	static struct options o = {
		.cfg = {
			.ready_fd = -1,
			.max_instances = 20,
			.overcommit_pct = AQ_OVERCOMMIT_NONE,
			.user_instances = 8,
			.poll_ms = 400,
		},
		.level = AQ_LOG_INFO,
	};
	struct aq_err err = { 0 };
	struct aqd *d = NULL;
	sigset_t set;
	int rc = parse(&o, argc, argv);

	if (rc != 0)
		return rc > 0 ? EXIT_SUCCESS : EXIT_USAGE;
	aq_log_init("aliquotd", o.level);
	if (complete(&o, &err) < 0) {
		(void)fprintf(stderr, "aliquotd: %s\n", err.msg);
		return EXIT_USAGE;
	}
	(void)sigemptyset(&set);
	(void)sigaddset(&set, SIGTERM);
	(void)sigaddset(&set, SIGINT);
	(void)pthread_sigmask(SIG_BLOCK, &set, NULL);
	(void)signal(SIGPIPE, SIG_IGN);
	/* A limit on file sizes is an error of the operation, not our end. */
	(void)signal(SIGXFSZ, SIG_IGN);
	raise_fd_limit();
	rc = aqd_new(&o.cfg, &d, &err);
	if (rc == 0)
		rc = aqd_run(d, &err);
	aqd_free(d);
	if (rc < 0) {
		aq_log_error("%s", err.msg);
		return EXIT_FAILURE;
	}
	return EXIT_SUCCESS;
}
