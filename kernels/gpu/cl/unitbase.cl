// What the files about matrix units that are not NVIDIA's begin with: the kinds, of which UNIT is one,
// and the panels of matrices in local memory, PANEL_ROWS rows of STEP depths. Rows are a little longer
// than needed, so that neighbours lie in different banks and 16 bytes are aligned.

#define WMMA11 1
#define WMMA12 2
#define MFMA 3
#define DPAS8 4
#define DPAS16 5

// UNIT_BF16 and UNIT_F16 are defined where there are to be kernels for that half: not every driver's
// compiler knows the instructions for both.

#define PANEL_ROWS 128
#define STEP 32
#define PITCH (STEP + 8)
#define PANEL_SIZE (PANEL_ROWS * PITCH)

// Does `...` for each i of [0,n), n being 2, 4 or 8. It is written out: not every compiler unrolls all
// loops that it is asked to, and what is indexed in such a loop lies in memory, not in registers.
#ifdef EMULATED
#define REPEAT(n, i, ...) for (int i = 0; i < (n); i++) { __VA_ARGS__ }
#else
#define REPEAT(n, i, ...) REPEAT_N(n, i, __VA_ARGS__)
#define REPEAT_N(n, i, ...) REPEAT_##n(i, __VA_ARGS__)
#define REPEAT_2(i, ...) { const int i = 0; __VA_ARGS__ } { const int i = 1; __VA_ARGS__ }
#define REPEAT_4(i, ...) REPEAT_2(i, __VA_ARGS__) { const int i = 2; __VA_ARGS__ } { const int i = 3; __VA_ARGS__ }
#define REPEAT_8(i, ...) REPEAT_4(i, __VA_ARGS__) { const int i = 4; __VA_ARGS__ } { const int i = 5; __VA_ARGS__ } \
  { const int i = 6; __VA_ARGS__ } { const int i = 7; __VA_ARGS__ }
#endif
