/* SPDX-License-Identifier: Apache-2.0 */
#define PROVIDER_EXTRA
#include "shim/provider-body.h"
