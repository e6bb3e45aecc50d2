/* Tensors op by op: softmax((x . w) * 2), and a mistake that comes out where the Tensor is read. */
#include <doorbell.h>
#include <stdio.h>
#include <stdlib.h>

static doorbell_error error = {.struct_size = sizeof error};

static void check(int32_t status) {
    if (status != DOORBELL_OK) {
        fprintf(stderr, "%s: %s\n", doorbell_status_name(status), error.text);
        exit(1);
    }
}

int main(void) {
    const float data[6] = {0, 1, 2, 3, 4, 5}, weights[6] = {1, 0, 0, 1, 1, 1}, two = 2;
    const size_t rows[2] = {2, 3}, columns[2] = {3, 2};
    doorbell_tensor *x, *w, *k, *product, *scaled, *p, *wrong;
    float out[4];
    size_t shape[2], rank;
    check(doorbell_tensor_from(data, DOORBELL_F32, rows, 2, &x, &error));
    check(doorbell_tensor_from(weights, DOORBELL_F32, columns, 2, &w, &error));
    check(doorbell_tensor_from(&two, DOORBELL_F32, NULL, 0, &k, &error));
    check(doorbell_tensor_binary(DOORBELL_MATMUL, x, w, &product, &error));
    check(doorbell_tensor_binary(DOORBELL_MUL, product, k, &scaled, &error));
    check(doorbell_tensor_unary(DOORBELL_SOFTMAX, scaled, -1, &p, &error));
    check(doorbell_tensor_shape(p, shape, 2, &rank, &error));
    check(doorbell_tensor_read(p, out, sizeof out, &error));
    printf("%zu x %zu: %.4f %.4f %.4f %.4f\n", shape[0], shape[1], out[0], out[1], out[2], out[3]);
    check(doorbell_tensor_binary(DOORBELL_MATMUL, x, x, &wrong, &error));
    if (doorbell_tensor_read(wrong, out, sizeof out, &error) != DOORBELL_COMPILE) return 1;
    doorbell_tensor *all[] = {x, w, k, product, scaled, p, wrong};
    for (size_t i = 0; i < 7; i++) doorbell_tensor_close(all[i]);
    return rank == 2 ? 0 : 1;
}
