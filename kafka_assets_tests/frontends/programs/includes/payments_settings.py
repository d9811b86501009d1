# Databricks notebook source
BOOTSTRAP = "pay-kafka:9093"
PAYMENT = "payment_id STRING, amount DECIMAL(12, 2), currency STRING"
RULES = {"has currency": "currency IS NOT NULL", "amount": "amount > 0"}
