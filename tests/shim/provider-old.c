/* SPDX-License-Identifier: Apache-2.0 */
#define PROVIDER_OLD
#include "shim/provider-body.h"
