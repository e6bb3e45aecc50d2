//! Layers with wrong inputs or settings: errors with the caller's line, no panic.

use doorbell::nn::{
    BatchNorm, Conv2d, GRU, GroupNorm, InstanceNorm, LSTM, LayerNorm2d, MultiHeadAttention, Recurrent, Sequential,
};
use doorbell::tensor::prelude::*;

#[track_caller]
fn refused(t: &Tensor, text: &str) {
    let error = t.shape().unwrap_err().to_string();
    assert!(error.contains(text) && error.contains("nn/mistakes.rs:"), "{error}");
}

#[test]
fn layers_say_what_does_not_fit() {
    let flat = Tensor::ones([4]);
    let image = Tensor::ones([1, 3, 2, 2]);
    refused(&GroupNorm::new(2, 3).forward(&image), "3 channels are not 2 even groups");
    refused(&GroupNorm::new(1, 4).forward(&flat), "channels are axis 1, the rank is 1");
    refused(&GroupNorm::new(0, 3).forward(&image), "3 channels are not 0 even groups");
    refused(&InstanceNorm::new(3).forward(&Tensor::ones([2, 3])), "no axes after the channels");
    refused(&LayerNorm2d::new(3).forward(&flat), "axis 1 is out of range");
    refused(&BatchNorm::new(3).forward(&flat, true), "axis");
    refused(&MultiHeadAttention::new(6, 4).forward(&image, &image, &image, None, false), "4 heads");
    refused(
        &MultiHeadAttention::grouped(6, 3, 2).forward(&image, &image, &image, None, false),
        "do not share 6 numbers",
    );
    refused(&LSTM::new(3, 4, Recurrent::default()).forward(&flat, None).0, "(time, n, inputs)");
    refused(&Conv2d::new(3, 4, [3, 3, 3], Conv::default()).forward(&image), "3 values as kernel for 2 axes");
    let how = Recurrent { batch_first: true, ..Recurrent::default() };
    refused(&GRU::new(3, 4, how).forward(&Tensor::ones([2, 0, 3]), None).0, "(n, time, inputs)");
    let none = Recurrent { layers: 0, ..Recurrent::default() };
    let (y, _) = GRU::new(3, 4, none).forward(&Tensor::ones([2, 1, 3]), None);
    assert!(y.shape().is_ok());
    let net = Sequential::new().then(|x| x.reshape([7]));
    assert!(net.forward(&flat).shape().is_err());
}
