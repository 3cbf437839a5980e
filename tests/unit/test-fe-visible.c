/* SPDX-License-Identifier: Apache-2.0 */
#include "frontend/cuda/core.h"

#include "base/macro.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static const uint8_t uuids[4][16] = {
	{ 0xab, 0xcd, 0x01, 0x02, 0x03, 0x04, 0x05, 0x06 },
	{ 0xab, 0xce, 0x11 },
	{ 0x12, 0x34, 0x56, 0x78, 0x9a, 0xbc, 0xde, 0xf0, 1, 2, 3, 4, 5, 6, 7, 8 },
	{ 0x99 },
};

/* The cards as digits: "20" is the third and the first. */
static const char *seen(const char *text)
{
	static char digits[AQ_WIRE_MAX_CARDS + 1];
	uint32_t cards[AQ_WIRE_MAX_CARDS];
	unsigned n = aq_fe_visible(text, AQ_ARRAY_SIZE(uuids), uuids, cards);

	for (unsigned i = 0; i < n; i++)
		digits[i] = (char)('0' + cards[i]);
	digits[n] = '\0';
	return digits;
}

static void numbers_choose_and_order(void **state)
{
	(void)state;
	assert_string_equal(seen(NULL), "0123");
	assert_string_equal(seen("0"), "0");
	assert_string_equal(seen("3,1"), "31");
	assert_string_equal(seen(" 2 , 0 "), "20");
	assert_string_equal(seen("0,1,2,3"), "0123");
}

static void the_first_invalid_entry_ends_the_list(void **state)
{
	(void)state;
	assert_string_equal(seen(""), "");
	assert_string_equal(seen("-1"), "");
	assert_string_equal(seen("NoDevFiles"), "");
	assert_string_equal(seen("1,-1,2"), "1");
	assert_string_equal(seen("2,4,1"), "2");
	assert_string_equal(seen("0,,1"), "0");
	assert_string_equal(seen("0,1x"), "0");
	assert_string_equal(seen("0,99999999999999999999"), "0");
	assert_string_equal(seen("1,1,0"), "1");
	assert_string_equal(seen(",0"), "");
}

static void identifiers_may_be_cut_where_they_are_unique(void **state)
{
	(void)state;
	assert_string_equal(seen("GPU-12345678-9abc-def0-0102-030405060708"), "2");
	assert_string_equal(seen("GPU-12345678"), "2");
	assert_string_equal(seen("gpu-ABCD"), "0");
	assert_string_equal(seen("GPU-ab"), "");
	assert_string_equal(seen("GPU-abce,GPU-9,0"), "130");
	assert_string_equal(seen("GPU-"), "");
	assert_string_equal(seen("GPU-7"), "");
	assert_string_equal(seen("GPU-12345678-9abc-def0-0102-0304050607080"), "");
	assert_string_equal(seen("MIG-12345678"), "");
}

static void pci_addresses_as_people_write_them(void **state)
{
	unsigned d;
	unsigned b;
	unsigned s;

	(void)state;
	assert_true(aq_fe_pci_parse("0000:3b:00.0", &d, &b, &s));
	assert_int_equal(b, 0x3b);
	assert_true(aq_fe_pci_parse("00000001:A0:1f.0", &d, &b, &s));
	assert_int_equal(d, 1);
	assert_int_equal(b, 0xa0);
	assert_int_equal(s, 0x1f);
	assert_true(aq_fe_pci_parse("3b:00", &d, &b, &s));
	assert_int_equal(d, 0);
	assert_false(aq_fe_pci_parse("", &d, &b, &s));
	assert_false(aq_fe_pci_parse("3b", &d, &b, &s));
	assert_false(aq_fe_pci_parse("0000:3b:00.", &d, &b, &s));
	assert_false(aq_fe_pci_parse("0000:3b:00.0 ", &d, &b, &s));
	assert_false(aq_fe_pci_parse("0:0:0:0", &d, &b, &s));
	assert_false(aq_fe_pci_parse("000000000:3b:00", &d, &b, &s));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(numbers_choose_and_order),
		cmocka_unit_test(the_first_invalid_entry_ends_the_list),
		cmocka_unit_test(identifiers_may_be_cut_where_they_are_unique),
		cmocka_unit_test(pci_addresses_as_people_write_them),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
