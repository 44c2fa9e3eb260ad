/* Sustained memory bandwidth, measured and printed as STREAM does (McCalpin, "Memory Bandwidth and Machine Balance in
 * Current High Performance Computers", 1995): four kernels over arrays of doubles, the best of several rounds counts,
 * the first round does not, and the results are checked. MB is 10^6 bytes.
 *
 *     cc -O3 -march=native -fopenmp -o stream stream.c && ./stream ELEMENTS TIMES
 *
 * Every thread writes its part of the arrays first, so that their pages lie on the NUMA node whose CPUs it may use.
 */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { COPY, SCALE, ADD, TRIAD, KERNELS };

static const char *const names[KERNELS] = {"Copy", "Scale", "Add", "Triad"};
static const int arrays_moved[KERNELS] = {2, 2, 3, 3};
static const double scalar = 3.0;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double run(int kernel, long n, double *restrict a, double *restrict b, double *restrict c)
{
    double begin = now();
    switch (kernel) {
    case COPY:
#pragma omp parallel for
        for (long i = 0; i < n; i++) c[i] = a[i];
        break;
    case SCALE:
#pragma omp parallel for
        for (long i = 0; i < n; i++) b[i] = scalar * c[i];
        break;
    case ADD:
#pragma omp parallel for
        for (long i = 0; i < n; i++) c[i] = a[i] + b[i];
        break;
    default:
#pragma omp parallel for
        for (long i = 0; i < n; i++) a[i] = b[i] + scalar * c[i];
    }
    return now() - begin;
}

int main(int argc, char **argv)
{
    long n = argc == 3 ? strtol(argv[1], NULL, 10) : 0;
    long times = argc == 3 ? strtol(argv[2], NULL, 10) : 0;
    if (n < 1 || times < 2) {
        fprintf(stderr, "usage: %s ELEMENTS TIMES (two or more)\n", argv[0]);
        return 2;
    }
    double *a = malloc((size_t)n * sizeof *a), *b = malloc((size_t)n * sizeof *b), *c = malloc((size_t)n * sizeof *c);
    if (!a || !b || !c) {
        fprintf(stderr, "out of memory: three arrays of %ld doubles\n", n);
        return 1;
    }
#pragma omp parallel for
    for (long i = 0; i < n; i++) {
        a[i] = 1.0;
        b[i] = 2.0;
        c[i] = 0.0;
    }
    double total[KERNELS] = {0}, best[KERNELS], worst[KERNELS] = {0};
    for (int k = 0; k < KERNELS; k++) best[k] = DBL_MAX;
    double ea = 1.0, eb = 2.0, ec = 0.0; /* what every element must be at the end */
    for (long round = 0; round < times; round++) {
        for (int k = 0; k < KERNELS; k++) {
            double seconds = run(k, n, a, b, c);
            if (round == 0) continue;
            total[k] += seconds;
            best[k] = fmin(best[k], seconds);
            worst[k] = fmax(worst[k], seconds);
        }
        ec = ea;
        eb = scalar * ec;
        ec = ea + eb;
        ea = eb + scalar * ec;
    }
    printf("Array size = %ld (elements), Offset = 0 (elements)\n", n);
    printf("Each kernel will be executed %ld times.\n", times);
    printf("Function    Best Rate MB/s  Avg time     Min time     Max time\n");
    for (int k = 0; k < KERNELS; k++)
        printf("%-12s%11.1f  %11.6f  %11.6f  %11.6f\n", names[k],
               1e-6 * arrays_moved[k] * (double)sizeof *a * (double)n / best[k], total[k] / (double)(times - 1),
               best[k], worst[k]);
    double error = 0.0;
    for (long i = 0; i < n; i++)
        error = fmax(error, fmax(fabs(a[i] / ea - 1), fmax(fabs(b[i] / eb - 1), fabs(c[i] / ec - 1))));
    if (!(error < 1e-13)) {
        printf("Failed Validation: relative error %e\n", error);
        return 1;
    }
    printf("Solution Validates: avg error less than 1.000000e-13 on all three arrays\n");
    return 0;
}
