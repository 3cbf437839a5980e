/* SPDX-License-Identifier: Apache-2.0 */
#define PROVIDER_OPEN
#include "shim/provider-body.h"
