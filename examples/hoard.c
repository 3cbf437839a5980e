/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Takes memory in pieces until it has enough or gets no more, keeps it a while, and looks whether everything in it is still as it was written.
 * Arguments: MiB wanted, seconds. Ends with status 1 when it got less.
 */
#include "demo.h"

#include "saxpy.ptx.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PIECE ((size_t)8 << 20)
#define MOST  4096

int main(int argc, char **argv)
{
	unsigned want = demo_argument(argc, argv, 1, 256);
	unsigned seconds = demo_argument(argc, argv, 2, 1);
	static CUdeviceptr piece[MOST];
	unsigned char *buffer = malloc(PIECE);
	CUresult refused = CUDA_SUCCESS;
	size_t wrong = 0;
	size_t total = 0;
	size_t left = 0;
	unsigned n = 0;

	if (!buffer)
		return 1;
	demo_open("hoard", saxpy_ptx, "saxpy");
	DEMO(cuMemGetInfo_v2(&left, &total));
	printf("hoard      wants %u MiB of a GPU with %zu MiB, of which %zu are free\n", want,
	       total >> 20, left >> 20);
	while (n < MOST && n * PIECE < (size_t)want << 20 && refused == CUDA_SUCCESS) {
		refused = demo.cuMemAlloc_v2(&piece[n], PIECE);
		if (refused != CUDA_SUCCESS)
			break;
		memset(buffer, (int)(n + 1), PIECE);
		DEMO(cuMemcpyHtoD_v2(piece[n++], buffer, PIECE));
	}
	if (refused != CUDA_SUCCESS) {
		const char *name = "an unknown error";

		(void)demo.cuGetErrorName(refused, &name);
		printf("hoard      has %zu MiB, the next %zu were refused: %s\n", n * PIECE >> 20,
		       PIECE >> 20, name);
	}
	(void)fflush(stdout);
	(void)sleep(seconds);
	for (unsigned i = 0; i < n; i++) {
		memset(buffer, 0, PIECE);
		demo_download(buffer, piece[i], PIECE);
		for (size_t b = 0; b < PIECE; b++)
			wrong += buffer[b] != (unsigned char)(i + 1);
	}
	free(buffer);
	demo_verdict(wrong, "%zu MiB are as they were written", n * PIECE >> 20);
	demo_close();
	return refused != CUDA_SUCCESS;
}
