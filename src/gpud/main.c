/* SPDX-License-Identifier: Apache-2.0 */
/* aliquot-gpud: hosts software cards for the front end. */
#include "base/cleanup.h"
#include "base/err.h"
#include "base/macro.h"
#include "base/size.h"
#include "gpud/server.h"
#include "gpud/soft/backend.h"
#include "util/log.h"

#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#define EXIT_USAGE 2

struct options {
	const char *socket;
	struct aq_profile profiles[AQ_WIRE_MAX_CARDS];
	uint32_t n_profiles;
	uint32_t n_cards; /* 0: one a profile */
	uint32_t workers;
	uint64_t host_limit;
	int ready_fd;
	enum aq_log_level level;
};

static const char usage[] =
	"usage: aliquot-gpud --socket PATH [--profile P]… [--cards N] [option]…\n"
	"\n"
	"Host software cards. A program uses them through Aliquot's libcuda.so.1; `aliquot soft` starts both.\n"
	"\n"
	"  --socket PATH      listen there (not needed under socket activation)\n"
	"  --profile P        NAME[,speed=F][,memory=SIZE][,sms=N][,sm=CC]; once a card; default card-16g\n"
	"  --cards N          so many cards, the last profile repeated\n"
	"  --workers N        interpreting threads a card; default one a core\n"
	"  --host-memory SIZE limit of pinned host memory of all clients; default what the machine has\n"
	"  --ready-fd N       write a byte to descriptor N and close it when listening\n"
	"  --foreground       stay in the foreground: what it always does\n"
	"  --log-level L      error, warning, info or debug\n"
	"  --version          version and build\n"
	"  --help             this text\n"
	"\n"
	"Profiles:";

static void print_help(void)
{
	(void)printf("%s", usage);
	for (unsigned i = 0; aq_profile_name(i); i++)
		(void)printf(" %s", aq_profile_name(i));
	(void)printf("\n");
}

static int bad(const struct aq_err *err)
{
	(void)fprintf(stderr, "aliquot-gpud: %s\n", err->msg);
	return -EXIT_USAGE;
}

static int parse_level(const char *text, enum aq_log_level *ret, struct aq_err *err)
{
	static const struct {
		const char *name;
		enum aq_log_level level;
	} levels[] = {
		{ "error", AQ_LOG_ERROR },
		{ "warning", AQ_LOG_WARNING },
		{ "info", AQ_LOG_INFO },
		{ "debug", AQ_LOG_DEBUG },
	};

	for (size_t i = 0; i < AQ_ARRAY_SIZE(levels); i++) {
		if (strcmp(levels[i].name, text) == 0) {
			*ret = levels[i].level;
			return 0;
		}
	}
	return aq_err_set(err, -EINVAL, "log level \"%s\" is none of error, warning, info, debug",
			  text);
}

static int parse_number(const char *what, uint64_t max, uint64_t *ret, struct aq_err *err)
{
	return aq_uint_parse(optarg, what, max, ret, err);
}

static int add_profile(struct options *o, struct aq_err *err)
{
	if (o->n_profiles == AQ_WIRE_MAX_CARDS)
		return aq_err_set(err, -E2BIG, "more than %u profiles", AQ_WIRE_MAX_CARDS);
	return aq_profile_parse(optarg, &o->profiles[o->n_profiles++], err);
}

static int parse_one(struct options *o, int c, struct aq_err *err)
{
	uint64_t n = 0;
	int rc = 0;

	switch (c) {
	case 's':
		o->socket = optarg;
		return 0;
	case 'p':
		return add_profile(o, err);
	case 'c':
		rc = parse_number("cards", AQ_WIRE_MAX_CARDS, &n, err);
		if (rc == 0 && n == 0)
			return aq_err_set(err, -EINVAL, "at least one card is needed");
		o->n_cards = (uint32_t)n;
		return rc;
	case 'w':
		rc = parse_number("workers", 1024, &n, err);
		o->workers = (uint32_t)n;
		return rc;
	case 'm':
		return aq_size_parse(optarg, &o->host_limit, err);
	case 'r':
		rc = parse_number("ready-fd", INT32_MAX, &n, err);
		o->ready_fd = (int)n;
		return rc;
	case 'l':
		return parse_level(optarg, &o->level, err);
	default:
		return 0; /* --foreground */
	}
}

/* Returns 0, 1 (done, exit 0) or -EXIT_USAGE. */
static int parse(struct options *o, int argc, char **argv)
{
	static const struct option longs[] = {
		{ "socket", required_argument, NULL, 's' },
		{ "profile", required_argument, NULL, 'p' },
		{ "cards", required_argument, NULL, 'c' },
		{ "workers", required_argument, NULL, 'w' },
		{ "host-memory", required_argument, NULL, 'm' },
		{ "ready-fd", required_argument, NULL, 'r' },
		{ "log-level", required_argument, NULL, 'l' },
		{ "foreground", no_argument, NULL, 'f' },
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
			print_help();
			return 1;
		}
		if (c == 'V') {
			(void)printf("aliquot-gpud %s (wire protocol %u, compiler %s)\n",
				     AQ_VERSION, AQ_WIRE_VERSION, __VERSION__);
			return 1;
		}
		if (parse_one(o, c, &err) < 0)
			return bad(&err);
	}
	if (optind < argc) {
		(void)aq_err_set(&err, -EINVAL, "argument \"%s\" is not understood", argv[optind]);
		return bad(&err);
	}
	return 0;
}

/* One profile for each card. */
static int complete(struct options *o, struct aq_err *err)
{
	if (o->n_profiles == 0) {
		int rc = aq_profile_parse(AQ_PROFILE_DEFAULT, &o->profiles[0], err);

		if (rc < 0)
			return rc;
		o->n_profiles = 1;
	}
	if (o->n_cards == 0)
		o->n_cards = o->n_profiles;
	if (o->n_cards < o->n_profiles)
		return aq_err_set(err, -EINVAL, "%u profiles for %u cards", o->n_profiles,
				  o->n_cards);
	for (uint32_t i = o->n_profiles; i < o->n_cards; i++)
		o->profiles[i] = o->profiles[o->n_profiles - 1];
	return 0;
}

/* The socket from the service manager, or one of our own. *ret_own says that the path is ours to remove. */
static int get_socket(const struct options *o, bool *ret_own, struct aq_err *err)
{
	int n = sd_listen_fds(1);

	*ret_own = false;
	if (n > 1)
		return aq_err_set(err, -EINVAL, "%d sockets passed, one expected", n);
	if (n == 1)
		return SD_LISTEN_FDS_START;
	if (!o->socket)
		return aq_err_set(err, -EINVAL, "no --socket given");
	*ret_own = true;
	return aq_gpud_listen(o->socket, err);
}

/* Every large allocation of a client holds a descriptor here. */
static void raise_fd_limit(void)
{
	struct rlimit rl;

	if (getrlimit(RLIMIT_NOFILE, &rl) < 0)
		return;
	rl.rlim_cur = rl.rlim_max;
	(void)setrlimit(RLIMIT_NOFILE, &rl);
}

/* The same cards have the same UUIDs when the server comes back at the same place. */
static uint64_t seed_of(const char *socket)
{
	uint64_t h = 0xcbf29ce484222325ULL ^ getuid();

	for (const char *p = socket ? socket : ""; *p; p++)
		h = (h ^ (uint8_t)*p) * 0x100000001b3ULL;
	return h;
}

static void say_ready(const struct options *o)
{
	(void)sd_notify(0, "READY=1");
	if (o->ready_fd < 0)
		return;
	if (write(o->ready_fd, "\n", 1) != 1)
		aq_log_warning("cannot write to --ready-fd %d: %s", o->ready_fd, strerror(errno));
	(void)close(o->ready_fd);
}

static int run(const struct options *o, struct aq_err *err)
{
	struct aq_soft_config cfg = {
		.profiles = o->profiles,
		.n_cards = o->n_cards,
		.seed = seed_of(o->socket),
		.host_limit = o->host_limit,
		.workers = o->workers,
	};
	struct aq_gpud_backend backend;
	struct aq_gpud_server *server = NULL;
	struct aq_soft *soft = NULL;
	bool own_path = false;
	int fd = get_socket(o, &own_path, err);
	int rc;

	if (fd < 0)
		return fd;
	rc = aq_soft_new(&cfg, &soft, err);
	if (rc < 0) {
		(void)close(fd);
	} else {
		backend = aq_soft_backend(soft);
		rc = aq_gpud_server_new(&backend, fd, &server, err);
	}
	if (rc == 0) {
		say_ready(o);
		aq_log_info("%u software card%s at %s", o->n_cards, o->n_cards == 1 ? "" : "s",
			    o->socket ? o->socket : "the passed socket");
		rc = aq_gpud_server_run(server, 1, err);
		(void)sd_notify(0, "STOPPING=1");
	}
	if (own_path)
		(void)unlink(o->socket);
	aq_gpud_server_free(server);
	aq_soft_free(soft);
	return rc;
}

int main(int argc, char **argv)
{
	struct options o = { .ready_fd = -1, .level = AQ_LOG_WARNING };
	struct aq_err err = { 0 };
	sigset_t set;
	int rc = parse(&o, argc, argv);

	if (rc != 0)
		return rc > 0 ? EXIT_SUCCESS : EXIT_USAGE;
	aq_log_init("aliquot-gpud", o.level);
	if (complete(&o, &err) < 0)
		return -bad(&err);
	/* Before any thread: the event loop alone takes them. */
	(void)sigemptyset(&set);
	(void)sigaddset(&set, SIGTERM);
	(void)sigaddset(&set, SIGINT);
	(void)pthread_sigmask(SIG_BLOCK, &set, NULL);
	(void)signal(SIGPIPE, SIG_IGN);
	raise_fd_limit();
	if (run(&o, &err) < 0) {
		aq_log_error("%s", err.msg);
		return EXIT_FAILURE;
	}
	return EXIT_SUCCESS;
}
