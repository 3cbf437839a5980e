/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The node daemon: cards, instances, their clients, and who may do what with them. One event loop, one thread; everything here is called on it.
 *
 * Whatever a client or a person can make the daemon hold has a limit. What clients write (report pages, messages) is foreign input. The
 * daemon loads no vendor library: aliquot-probe does, and may crash or hang alone.
 */
#pragma once

#include "core/placement.h"
#include "proto/attach.h"
#include "shm/pages.h"
#include "util/list.h"

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <systemd/sd-event.h>

struct aq_err;
struct aq_slots;
struct aq_probe;
struct aq_control_server;

#define AQD_NAME_SIZE	     64U /* with NUL; as in the control page */
#define AQD_MAX_CARDS	     AQ_PLACE_CARDS
#define AQD_MAX_INSTANCES    1024U
#define AQD_MAX_GREETING     64U /* connections of one instance that have not said hello */
#define AQD_MAX_CONNECTIONS  8U	 /* of one client */
#define AQD_HELLO_TIMEOUT_US 5000000ULL
/* New programs wait so long at most for those that a restarted daemon expects back. */
#define AQD_RETURN_NS	1000000000ULL
#define AQD_RETURN_US	20000ULL /* how often that is looked at */
#define AQD_EVENTS	512U	 /* kept for `aliquot log` */
#define AQD_PID_BUCKETS 1024U
#define AQD_STRANGERS	256U
#define AQD_STORED	(2 * AQD_MAX_INSTANCES + 1)
#define AQD_RELEASE_GRACE_NS \
	(2 * 1000000000ULL) /* after death, where the driver does not say who uses the card */

/* How long programs of an ephemeral vgpu may take to come back to a restarted daemon. */
#define AQD_ORPHAN_GRACE_NS (10 * 1000000000ULL)

enum aqd_action {
	AQD_REPORT,
	AQD_FREEZE,
	AQD_KILL
};

/* What main() understood; strings live as long as the process. */
struct aqd_config {
	bool private_mode;
	char dir[PATH_MAX / 4];	     /* control socket and attach directories */
	char state[PATH_MAX / 2];    /* the state file */
	char lock_dir[PATH_MAX / 4]; /* one lock file a card; "" none */
	const char *system_lock_dir; /* looked at, not written, by a private daemon; or NULL */
	char probe[PATH_MAX / 2];
	char cuda_provider[512];
	char nvml_provider[512];
	const char *group; /* its members may use the control socket; NULL: nobody else */
	uint64_t headroom_bytes;
	bool headroom_given;	/* else at most a sixteenth of the card */
	unsigned max_instances; /* of a card */
	unsigned overcommit_pct;
	unsigned user_instances; /* ceiling of one member of the group */
	bool allow_software;
	enum aqd_action strangers;
	unsigned poll_ms; /* of the watchdog */
	int ready_fd;
};

struct aqd_card {
	char uuid[48];
	uint8_t uuid_bytes[16];
	char name[96];
	char pci[32];
	uint64_t memory_bytes;
	uint64_t reserved_bytes;
	uint64_t used_bytes;
	bool present; /* in the probe's latest list */
	bool software;
	int lock_fd;	   /* -1: not ours (yet) */
	char blocked[160]; /* why nothing is given out here; "" when something may be */
};

struct aqd_instance;

struct aqd_process_id {
	uint64_t start_time; /* tells it from a later process of that number */
	uint64_t
		image; /* where its stack starts: another one after each exec(); 0: not to be found out */
};

/* A process attached to an instance. */
struct aqd_client {
	struct aq_list link;	 /* instance->clients */
	struct aq_list pid_link; /* aqd.by_pid */
	struct aqd_instance *instance;
	pid_t pid;
	struct aqd_process_id id;
	uid_t uid;
	uint32_t slot;
	char program[32];
	int pidfd; /* -1: death is seen by end of file */
	sd_event_source *pidfd_source;
	struct aq_list connections; /* empty: detached */
	unsigned n_connections;
	uint64_t ended_ns; /* 0: lives; else releasing since then */
	/* Watchdog: accounts before the reading, and the excess of the latest readings. */
	uint64_t before[AQ_INSTANCE_CARDS];
	uint64_t excess[AQ_INSTANCE_CARDS][2];
	bool excess_logged;
};

struct aqd_instance_card {
	char uuid[48];
	int card; /* index in aqd.cards, -1: not there now */
	unsigned compute_pct;
	uint64_t limit_bytes;
};

enum aqd_priority {
	AQD_LOW,
	AQD_NORMAL,
	AQD_HIGH
};

struct aqd_instance {
	struct aq_list link; /* aqd.instances */
	struct aqd *d;
	char name[AQD_NAME_SIZE];
	uid_t owner;
	bool access_any;
	bool ephemeral; /* goes with the control connection that made it */
	enum aqd_priority priority;
	bool frozen;
	bool removing;
	uint64_t
		orphaned_ns; /* ephemeral, and its maker is gone: from then on it goes when it has no client */
	unsigned n_cards;
	struct aqd_instance_card cards[AQ_INSTANCE_CARDS];
	char dir[PATH_MAX / 2];
	int listen_fd;
	sd_event_source *listen_source;
	int control_fd, report_fd;
	struct aq_control_page *control;
	struct aq_report_page *report;
	struct aq_slots *slots; /* who holds which slot, for the next daemon */
	struct aq_list clients;
	unsigned n_clients;
	struct aqd_client *by_slot[AQ_MAX_CLIENTS];
	struct aq_list greeting; /* connections without a client */
	sd_event_source
		*return_source; /* while new programs have to wait: see aqd_client_expect() */
	uint64_t return_until_ns;
	unsigned n_greeting;
	/* Of clients that are gone: how many refusals, and the latest. */
	uint64_t refusals, refused_ns, refused_bytes;
	uint32_t refused_card;
	uint64_t noted_ns; /* the last line about a refused process, and how many had none since */
	unsigned unnoted;
};

/* One connection to an attach socket. */
struct aqd_conn {
	struct aq_list link; /* instance->greeting or client->connections */
	struct aqd_instance *instance;
	struct aqd_client *client; /* NULL until hello */
	int fd;
	sd_event_source *source;
	sd_event_source *timer; /* for hello */
	bool held;		/* it has come, and waits for others' return */
	struct aq_attach_hello hello;
	/* SETTLE waits for a reading that began after it. */
	struct {
		bool waiting;
		uint64_t since_ns;
	} settle[AQ_INSTANCE_CARDS];
};

struct aqd_stranger {
	pid_t pid;
	unsigned card;
	uint64_t bytes; /* UINT64_MAX: unknown */
	char program[32];
	bool mps;
	bool seen; /* in the reading that is being looked at */
	bool logged;
	uint64_t since_ns;
	enum aqd_action action;
};

struct aqd_event {
	uint64_t id;
	double time;
	char vgpu[AQD_NAME_SIZE];
	char text[200];
};

struct aqd {
	struct aqd_config cfg;
	sd_event *event;
	uint32_t epoch;
	unsigned n_cards;
	struct aqd_card cards[AQD_MAX_CARDS];
	struct aq_list instances;
	unsigned n_instances;
	struct aq_probe *probe;
	struct aq_control_server *control;
	sd_event_source *heartbeat;
	sd_event_source *watchdog;
	struct aq_list by_pid[AQD_PID_BUCKETS];
	unsigned n_strangers;
	struct aqd_stranger strangers[AQD_STRANGERS];
	uint64_t next_event;
	struct aqd_event events[AQD_EVENTS];
	uint64_t next_default_name;
	int spare_fd;	     /* see aqd_accept() */
	int lock_fd;	     /* one daemon a directory */
	bool cards_known;    /* the probe has answered, or failed */
	uint64_t history_ns; /* when the watchdog last moved its records on */
	unsigned n_stored;
	struct aqd_stored {
		char name[16 + AQD_NAME_SIZE]; /* "report-NAME", "attach-NAME", "control" */
		int fd;
	} stored[AQD_STORED];
};

/* daemon.c: the whole. */
int aqd_new(const struct aqd_config *cfg, struct aqd **ret, struct aq_err *err);
/* Run until SIGTERM or SIGINT, which the caller has blocked. */
int aqd_run(struct aqd *d, struct aq_err *err);
/* Close and free everything; attach directories, limits and programs stay. NULL is fine. */
void aqd_free(struct aqd *d);

/* Into the ring for `aliquot log` and to the log. `vgpu` may be NULL. */
void aqd_note(struct aqd *d, const char *vgpu, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/*
 * Accept one connection, non-blocking. When there are no descriptors left the connection is accepted and closed by means of a spare one, so that the
 * loop does not spin on it. Returns the fd or -errno.
 */
int aqd_accept(struct aqd *d, int listen_fd);

/* A listening Unix socket of `type` at `path`, non-blocking; what is there is replaced. Returns the fd or -errno. */
int aqd_listen(const char *path, int type, mode_t mode, struct aq_err *err);

/*
 * Descriptors that the service manager keeps for us over a restart. Taking hands the descriptor over; -1 when there is none. Without a service
 * manager keeping and dropping do nothing.
 */
int aqd_store_take(struct aqd *d, const char *kind, const char *name);
void aqd_store_keep(const char *kind, const char *name, int fd);
void aqd_store_drop(const char *kind, const char *name);

/* cards.c */
/* Take over the probe's list. Cards that it lacks stay, as not present. */
struct aqd_card_report {
	char uuid[48], name[96], pci[32];
	uint64_t memory_bytes, reserved_bytes, used_bytes;
};
void aqd_cards_update(struct aqd *d, const struct aqd_card_report *cards, unsigned n);
/* Index of the card named by number, UUID or a beginning of it that only one has. Or -ENODEV. */
int aqd_card_find(const struct aqd *d, const char *text, struct aq_err *err);
/* Make the card ours. 0, or -EBUSY with who has it. */
int aqd_card_claim(struct aqd *d, struct aqd_card *card, struct aq_err *err);
/* Give it back when no instance is on it (private daemon). */
void aqd_card_unclaim(struct aqd *d, unsigned card);
/* Placement's view of all cards, less what `without` (may be NULL) holds. */
void aqd_cards_for_placement(const struct aqd *d, const struct aqd_instance *without,
			     struct aq_place_card *ret);
void aqd_cards_done(struct aqd *d);
/* The 16 bytes of "GPU-xxxxxxxx-xxxx-…" or "MIG-…"; anything else is hashed into them. */
void aqd_uuid_bytes(const char *text, uint8_t ret[static 16]);

/* instance.c */
struct aqd_want {
	uint64_t mem_bytes;
	unsigned compute_pct;
	int card; /* or AQ_PLACE_ANY */
};
struct aqd_request {
	const char *name; /* NULL: ours to choose */
	uid_t owner;
	bool access_any, ephemeral;
	enum aqd_priority priority;
	enum aq_placement placement;
	unsigned n_wants;
	struct aqd_want wants[AQ_INSTANCE_CARDS];
};
int aqd_instance_create(struct aqd *d, const struct aqd_request *r, struct aqd_instance **ret,
			struct aq_err *err);
/* From the state file: no placement, limits as they were. */
int aqd_instance_restore(struct aqd *d, const struct aqd_instance *from, struct aq_err *err);
struct aqd_instance *aqd_instance_find(struct aqd *d, const char *name);
/* New limit for the cards in `mask`; other values < 0 stay. Nothing changes on failure. */
struct aqd_change {
	uint32_t mask;
	bool set_mem;
	uint64_t mem_bytes;
	int compute_pct; /* -1: stays */
	int priority;	 /* -1: stays */
};
int aqd_instance_set(struct aqd_instance *i, const struct aqd_change *c, struct aq_err *err);
/*
 * Remove. -EBUSY while programs are attached, unless `force`, which kills them (*ret_killed). The instance lives on as "removing" until the
 * driver has given back what its programs held; *ret_gone says whether it is gone already.
 */
int aqd_instance_remove(struct aqd_instance *i, bool force, bool *ret_gone, unsigned *ret_killed,
			struct aq_err *err);
/* Free a removing one if nothing is left in it. True when it is gone. */
bool aqd_instance_reap(struct aqd_instance *i);
int aqd_instance_freeze(struct aqd_instance *i, bool freeze, struct aq_err *err);
/* Close and free; directory, slots file and fds in the store stay. */
void aqd_instance_free(struct aqd_instance *i);
void aqd_instance_beat(struct aqd_instance *i, uint64_t now_ns);
/* Bind its cards to what the probe says now. */
void aqd_instance_bind_cards(struct aqd_instance *i);
unsigned aqd_instance_living(const struct aqd_instance *i);

/* client.c */
int aqd_client_listen(struct aqd_instance *i, struct aq_err *err);
/* A client of the daemon before us, which may come back. */
int aqd_client_adopt(struct aqd_instance *i, pid_t pid, const struct aqd_process_id *id, uid_t uid,
		     uint32_t slot, const char *program);
/*
 * The report page is new, and filled in from a reading that may be some hundred milliseconds old: nobody new is let in before the programs of the
 * daemon before us are back with what they hold, at most AQD_RETURN_NS long.
 */
int aqd_client_expect(struct aqd_instance *i);
void aqd_client_free(struct aqd_client *c);
void aqd_conn_free(struct aqd_conn *c);
/* Sum of used, overhead and pending on one card; saturates. */
uint64_t aqd_client_counted(const struct aqd_client *c, unsigned card);
/* Its memory is back: free the slot. */
void aqd_client_release(struct aqd_client *c);
/* The process that has this number, or NULL. Living ones are preferred. */
struct aqd_client *aqd_client_by_pid(struct aqd *d, pid_t pid);
bool aqd_client_signal(const struct aqd_client *c, int sig);
/* Answer a waiting SETTLE of card `card`. */
void aqd_conn_settled(struct aqd_conn *c, unsigned card, bool known, uint64_t bytes);

/* watchdog.c */
struct aqd_usage {
	pid_t pid;
	unsigned card;	/* index in aqd.cards */
	uint64_t bytes; /* UINT64_MAX: unknown */
};
int aqd_watchdog_start(struct aqd *d, struct aq_err *err);
/* A client waits for a reading, or has ended: do not wait for the next period. */
void aqd_watchdog_hurry(struct aqd *d);
/* A reading is about to be asked for. */
void aqd_watchdog_before(struct aqd *d);
/* A reading that began at `began_ns`. `known`: the driver says who uses its cards. */
void aqd_watchdog_reading(struct aqd *d, uint64_t began_ns, bool known,
			  const struct aqd_usage *usage, unsigned n);
const char *aqd_action_name(enum aqd_action action);

/* state.c */
int aqd_state_load(struct aqd *d, struct aq_err *err);
/* Atomically: either the new state is on the disk, or the old one still is and err says why. */
int aqd_state_save(const struct aqd *d, struct aq_err *err);

/* process.c: /proc, as far as it can be believed. */
/* 0, or -ESRCH. */
int aqd_process_identify(pid_t pid, struct aqd_process_id *ret);
/* Its number as itself sees it (innermost pid namespace), or -1 when that is not to be found out. */
pid_t aqd_process_inner_pid(pid_t pid);
/* Printable ASCII only. */
void aqd_process_name(pid_t pid, char *buf, size_t size);
void aqd_printable(char *text);
