/* SPDX-License-Identifier: Apache-2.0 */
#define PROVIDER_TWISTED
#include "shim/provider-body.h"
