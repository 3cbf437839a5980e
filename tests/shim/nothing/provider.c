/* SPDX-License-Identifier: Apache-2.0 */
/* A driver that does nothing: what a stand-in in front of it costs is all that there is. */
#include "shim/provider-body.h"
