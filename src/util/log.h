/* SPDX-License-Identifier: Apache-2.0 */
/* Logging of programs: one line on stderr, with a level that the service manager understands when it is not a terminal. */
#pragma once

enum aq_log_level {
	AQ_LOG_ERROR = 3,
	AQ_LOG_WARNING = 4,
	AQ_LOG_INFO = 6,
	AQ_LOG_DEBUG = 7
};

/* Lines above `level` are dropped; the default is AQ_LOG_INFO. `program` is put before each line; static string. */
void aq_log_init(const char *program, enum aq_log_level level);
void aq_log(enum aq_log_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#define aq_log_error(...)   aq_log(AQ_LOG_ERROR, __VA_ARGS__)
#define aq_log_warning(...) aq_log(AQ_LOG_WARNING, __VA_ARGS__)
#define aq_log_info(...)    aq_log(AQ_LOG_INFO, __VA_ARGS__)
#define aq_log_debug(...)   aq_log(AQ_LOG_DEBUG, __VA_ARGS__)
